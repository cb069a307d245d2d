// The control plane over MPI, on three ranks that mpirun starts: who attends is heard, who does not is named, and why a
// rank gives up reaches the others.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <doctest/doctest.h>
#include <mpi.h>

#include <chrono>
#include <string>
#include <thread>

#include "orchmllm/base/error.hpp"
#include "orchmllm/runtime/mpi_transport.hpp"

using namespace orch;
using namespace orch::runtime;

namespace {

constexpr std::chrono::seconds limit(20);

/// Does `meanwhile` again and again until `done`.
template <class Done, class Meanwhile>
void until(Done&& done, Meanwhile&& meanwhile) {
  const auto begin = std::chrono::steady_clock::now();
  while (!done()) {
    REQUIRE(std::chrono::steady_clock::now() - begin < limit);
    meanwhile();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Beside the control plane, whose own waits would answer questions.
void tell(int rank) { MPI_Send(nullptr, 0, MPI_BYTE, rank, 0, MPI_COMM_WORLD); }
bool told(int by) {
  int came = 0;
  MPI_Iprobe(by, 0, MPI_COMM_WORLD, &came, MPI_STATUS_IGNORE);
  if (came != 0) MPI_Recv(nullptr, 0, MPI_BYTE, by, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return came != 0;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("ranks of one job") {
  int argc = 0;
  char** argv = nullptr;
  MpiTransport control(argc, argv, {.timeout = limit});
  const std::uint32_t me = control.rank();
  REQUIRE(control.ranks() == 3);
  CHECK(control.all_gather("greeting", std::to_string(me)) == std::vector<std::string>{"0", "1", "2"});

  // Rank 0 asks rank 1, which attends, and rank 2, which waits for all in the control plane itself.
  if (me == 0) {
    const std::string said = control.ask_around("step 1: waits for 5 bytes from rank 1");
    CAPTURE(said);
    CHECK(said.starts_with("; every rank answers; rank "));
    CHECK(contains(said, "; rank 1: step 2: waits for 7 bytes from rank 2"));
    CHECK(contains(said, "; rank 2: meeting: waits for all ranks"));
    tell(1);
  } else if (me == 1) {
    until([] { return told(0); }, [&] { control.attend("step 2: waits for 7 bytes from rank 2"); });
  }
  control.barrier("meeting");

  // Ranks 0 and 1 ask at the same time, so that each answers while it asks. Rank 2 does something else until both are
  // done.
  if (me < 2) {
    const std::string said = control.ask_around("rank " + std::to_string(me) + " asks");
    const std::string other = std::to_string(1 - me);
    CHECK(said == "; no answer from rank 2; rank " + other + ": rank " + other + " asks");
    tell(2);
  } else {
    for (const int rank : {0, 1}) until([&] { return told(rank); }, [] {});
  }
  control.barrier("meeting again");

  // Rank 1 gives up: attend(), in which nothing happened until then, throws on the others.
  CHECK_NOTHROW(control.attend("nothing"));
  control.barrier("before rank 1 gives up");
  if (me == 1) {
    control.give_up("step 3: waits in vain");
  } else {
    CHECK_THROWS_WITH_AS(until([] { return false; }, [&] { control.attend("step 4: waits for all ranks"); }),
                         "rank 1 gave up: step 3: waits in vain", TransportError);
  }
  control.barrier("after rank 1 gave up");
}
