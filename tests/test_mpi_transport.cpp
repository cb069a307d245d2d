// The transport over MPI, on three ranks that mpirun starts: messages in several pieces, texts of any length, errors.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <span>
#include <string>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/runtime/mpi_transport.hpp"

using namespace orch;
using namespace orch::runtime;

namespace {

std::vector<std::byte> contents(std::uint64_t seed, std::size_t bytes) {
  Random random(seed);
  std::vector<std::byte> result(bytes);
  for (std::byte& byte : result) byte = static_cast<std::byte>(random.next() & 0xffU);
  return result;
}

/// Any size, the same on both sides: none, less than a chunk, exactly some chunks, more.
std::size_t run_bytes(std::uint64_t round, std::uint32_t from, std::uint32_t to, std::uint32_t number) {
  const std::uint64_t draw = mix64(round * 1000 + from * 100 + to * 10 + number);
  const std::size_t sizes[] = {0, 1, 999, 1000, 1001, 3000, 12345, 200000};
  return sizes[draw % 8];
}

/// A piece of memory that stands many times in a row in the address space: 2 GiB that take no more room than a piece.
class Repeated {
 public:
  Repeated(std::size_t piece, std::size_t times) : size_(piece * times) {
    const int file = memfd_create("repeated", 0);
    REQUIRE(file >= 0);
    REQUIRE(ftruncate(file, static_cast<off_t>(piece)) == 0);
    void* all = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(all != MAP_FAILED);
    data_ = static_cast<std::byte*>(all);
    for (std::size_t i = 0; i < times; ++i) {
      REQUIRE(mmap(data_ + i * piece, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED);
    }
    close(file);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  ~Repeated() { munmap(data_, size_); }

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::size_t size_;
  std::byte* data_ = nullptr;
};

}  // namespace

TEST_CASE("ranks of one job") {
  int argc = 0;
  char** argv = nullptr;
  MpiTransport transport(argc, argv, {.timeout = std::chrono::duration<double>(20), .chunk_bytes = 1000});
  const std::uint32_t me = transport.rank();
  const std::uint32_t ranks = transport.ranks();
  REQUIRE(ranks == 3);

  for (std::uint64_t round = 0; round < 20; ++round) {
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> received;
    std::vector<SendRun> sends;
    std::vector<ReceiveRun> receives;
    sent.reserve(6);
    received.reserve(6);
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      for (std::uint32_t number = 0; number < 2; ++number) {
        sent.push_back(contents(round + 100 * me + 10 * peer + number, run_bytes(round, me, peer, number)));
        received.emplace_back(run_bytes(round, peer, me, number));
        sends.push_back({peer, number, sent.back()});
        receives.push_back({peer, number, received.back()});
      }
    }
    transport.all_to_all("round " + std::to_string(round), sends, receives);
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      for (std::uint32_t number = 0; number < 2; ++number) {
        const auto expected = contents(round + 100 * peer + 10 * me + number, run_bytes(round, peer, me, number));
        CHECK(received[2 * peer + number] == expected);
      }
    }
    const auto texts = transport.all_gather("texts", std::string(me * round * 1000, 'x'));
    for (std::uint32_t peer = 0; peer < ranks; ++peer) CHECK(texts[peer].size() == peer * round * 1000);
  }

  {  // more bytes than an int counts, in memory of which all pieces are the same
    const Repeated memory(std::size_t{1} << 24U, 129);
    MpiTransport whole(argc, argv, {.timeout = std::chrono::duration<double>(20)});
    const std::size_t bytes = (std::size_t{1} << 31U) + 12345;
    const std::span<std::byte> big = memory.bytes().first(me < 2 ? bytes : 0);
    if (me == 0) big.front() = big.back() = std::byte{7};
    std::vector<SendRun> sends;
    std::vector<ReceiveRun> receives;
    if (me == 0) sends.push_back({1, 0, big});
    if (me == 1) receives.push_back({0, 0, big});
    whole.all_to_all("big", sends, receives);
    if (me == 1) CHECK((big.front() == std::byte{7} && big.back() == std::byte{7}));
  }

  // Rank 0 sends less than rank 1 expects. Nobody waits for anything afterwards.
  const std::vector<std::byte> few(10);
  std::vector<std::byte> many(20);
  transport.barrier("before the short message");
  if (me == 0) {
    const std::vector<SendRun> sends{{1, 0, few}};
    CHECK_NOTHROW(transport.all_to_all("short", sends, {}));
  } else if (me == 1) {
    const std::vector<ReceiveRun> receives{{0, 0, many}};
    CHECK_THROWS_WITH_AS(transport.all_to_all("short", {}, receives), "short: rank 0 sent 10 bytes, expected 20",
                         TransportError);
  }
}
