// Mailboxes of ranks that are processes of one host.
//
// A rank listens at an abstract address made of id and rank, and connects to all ranks below its own. What it puts down
// is an anonymous file, whose descriptor goes to the peer; the peer empties the file, and so the sender sees that it
// was taken. The kernel removes all of it with the processes, whatever ends them. ORCHMLLM_DOUBLE_LOSS=silent: the end
// of a peer is never noticed, as where GPUs write into each other's memory. SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "descriptor.hpp"
#include "mailbox.hpp"
#include "orchmllm/base/hash.hpp"

namespace orch::test::nccl {

namespace {

using runtime::Descriptor;

int checked(int result, const char* call) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), std::string("nccl double: ") + call);
  return result;
}

/// Calls `transfer(done)` until all bytes are there.
template <class Transfer>
void whole(std::size_t bytes, const char* call, Transfer&& transfer) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = transfer(done);
    if (count <= 0) throw std::system_error(errno, std::generic_category(), std::string("nccl double: ") + call);
    done += static_cast<std::size_t>(count);
  }
}

struct Address {
  Address(const std::string& id, int rank) {
    const std::string name = "orchmllm-nccl-double-" + hex(Fingerprint().add_bytes(id).value()) + "-" +
                             std::to_string(rank);  // behind a zero: abstract, no file
    text.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), text.sun_path + 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&text); }

  sockaddr_un text{};
  socklen_t length = 0;
};

struct Parcel {
  Descriptor file;
  std::size_t bytes = 0;
  bool sent = false;
};

/// All that is said between two ranks: who connects says its rank with the first one, which has no file.
struct Note {
  int rank = 0;
  std::size_t bytes = 0;
};

enum class Said : std::uint8_t { nothing, note, end };

union Control {
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

Said hear(const Descriptor& line, Note& note, Descriptor& file) {
  iovec part{&note, sizeof note};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t count = recvmsg(line.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Said::nothing;
  if (count != sizeof note) return Said::end;
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(header), sizeof number);
    file = Descriptor(number);
  }
  return Said::note;
}

/// False where there is no room at the moment, or nobody listens any more.
bool say(const Descriptor& line, Note note, const Descriptor& file) {
  iovec part{&note, sizeof note};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (file.is_open()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = file.get();
    std::memcpy(CMSG_DATA(header), &number, sizeof number);
  }
  return sendmsg(line.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof note;
}

Descriptor new_socket() {
  return Descriptor(checked(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket"));
}

class ProcessMailbox final : public Mailbox {
 public:
  ProcessMailbox(std::string id, int rank, int ranks, Descriptor listener)
      : id_(std::move(id)), rank_(rank), listener_(std::move(listener)), peers_(static_cast<std::size_t>(ranks)) {}

  void look() override {
    while (true) {
      Descriptor line(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!line.is_open()) break;
      strangers_.push_back(std::move(line));
    }
    for (Descriptor& stranger : strangers_) {
      Note note;
      Descriptor none;
      const Said said = hear(stranger, note, none);
      if (said == Said::note) peer(note.rank).line = std::move(stranger);
      if (said == Said::end) stranger = Descriptor();
    }
    std::erase_if(strangers_, [](const Descriptor& stranger) { return !stranger.is_open(); });
    for (int below = 0; below < rank_; ++below) {
      if (!peer(below).line.is_open()) connect_to(below);
    }
    for (Peer& each : peers_) {
      if (each.line.is_open()) exchange(each);
    }
  }

  [[nodiscard]] bool complete() const override {
    for (int other = 0; other < static_cast<int>(peers_.size()); ++other) {
      if (other != rank_ && !peer(other).line.is_open()) return false;
    }
    return true;
  }
  [[nodiscard]] bool lost(int other) const override { return notices_ends_ && peer(other).ended; }

  void put(int other, std::span<const std::byte> bytes) override {
    Parcel parcel{Descriptor(checked(memfd_create("nccl double", MFD_CLOEXEC), "memfd_create")), bytes.size()};
    whole(bytes.size(), "pwrite", [&](std::size_t done) {
      return pwrite(parcel.file.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    });
    peer(other).put.push_back(std::move(parcel));
  }
  [[nodiscard]] std::uint64_t taken_by(int other) const override { return peer(other).taken; }
  [[nodiscard]] std::optional<std::size_t> next_from(int other) const override {
    const Peer& from = peer(other);
    if (from.come.empty()) return std::nullopt;
    return from.come.front().bytes;
  }
  void take(int other, std::byte* to) override {
    const Parcel parcel = std::move(peer(other).come.front());
    peer(other).come.pop_front();
    whole(parcel.bytes, "pread", [&](std::size_t done) {
      return pread(parcel.file.get(), to + done, parcel.bytes - done, static_cast<off_t>(done));
    });
    checked(ftruncate(parcel.file.get(), 0), "ftruncate");
  }

 private:
  struct Peer {
    Descriptor line;
    bool ended = false;
    std::deque<Parcel> put;   ///< not seen to be taken
    std::deque<Parcel> come;  ///< not taken
    std::uint64_t taken = 0;
  };

  [[nodiscard]] Peer& peer(int rank) { return peers_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] const Peer& peer(int rank) const { return peers_.at(static_cast<std::size_t>(rank)); }

  void connect_to(int below) {
    const Address address(id_, below);
    Descriptor line = new_socket();
    if (connect(line.get(), address.get(), address.length) != 0) return;  // not there yet, or busy
    if (say(line, {rank_, 0}, Descriptor())) peer(below).line = std::move(line);
  }

  void exchange(Peer& with) {
    for (Parcel& parcel : with.put) {
      if (!parcel.sent) parcel.sent = say(with.line, {rank_, parcel.bytes}, parcel.file);
      if (!parcel.sent) break;
    }
    while (!with.put.empty() && with.put.front().sent && is_empty(with.put.front().file)) {
      with.put.pop_front();
      ++with.taken;
    }
    while (!with.ended) {
      Note note;
      Parcel parcel;
      const Said said = hear(with.line, note, parcel.file);
      if (said == Said::nothing) break;
      if (said == Said::end) with.ended = true;
      parcel.bytes = note.bytes;
      if (said == Said::note) with.come.push_back(std::move(parcel));
    }
  }

  static bool is_empty(const Descriptor& file) {
    struct stat state {};
    checked(fstat(file.get(), &state), "fstat");
    return state.st_size == 0;
  }

  std::string id_;
  int rank_;
  Descriptor listener_;
  std::vector<Peer> peers_;
  std::vector<Descriptor> strangers_;  ///< who has connected and has not said its rank
  bool notices_ends_ = process_notices_ends();

  static bool process_notices_ends() {
    const char* loss = std::getenv("ORCHMLLM_DOUBLE_LOSS");
    return loss == nullptr || std::string_view(loss) != "silent";
  }
};

}  // namespace

std::unique_ptr<Mailbox> open_mailbox(const std::string& id, int rank, int ranks) {
  Descriptor listener = new_socket();
  const Address address(id, rank);
  if (bind(listener.get(), address.get(), address.length) != 0) return nullptr;
  checked(listen(listener.get(), ranks), "listen");
  return std::make_unique<ProcessMailbox>(id, rank, ranks, std::move(listener));
}

/// As orch-run keeps them: one GiB a group, messages in what the transport allocated.
Rules standing_rules() { return {.group_bytes = std::size_t{1} << 30U, .registered_only = true, .deadly = true}; }

}  // namespace orch::test::nccl
