#include "nccl_double.hpp"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "device_double.hpp"
#include "mailbox.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/runtime/device.hpp"

namespace {

using namespace orch::test;

struct Post {
  bool incoming = false;
  int peer = 0;
  std::byte* memory = nullptr;  ///< of a send, only read
  std::size_t bytes = 0;
  std::uint64_t number = 0;  ///< of a send: among those to the peer
  bool met = false;
};

}  // namespace

struct ncclComm {
  std::unique_ptr<nccl::Mailbox> mail;
  int rank = 0;
  int ranks = 0;
  int channels = 0;
  bool aborted = false;
  bool finalised = false;
  int in_progress = 0;  ///< answers that still say so
  std::uint64_t groups = 0;
  std::map<int, std::uint64_t> sends;  ///< by peer, posted
  std::set<int> peers;
  std::string last_error;  ///< what the communicator says as ncclRemoteError
};

namespace {

/// Memory, of one communicator.
struct Registered {
  const ncclComm* comm = nullptr;
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
};

struct State {
  nccl::Rules rules = nccl::standing_rules();
  nccl::Record record;
  std::map<int, std::uint64_t> failing, stalled;
  std::map<int, int> versions;
  std::set<int> hanging;                   ///< ranks, in their aborts
  std::set<int> refusing;                  ///< devices, to register
  std::map<void*, Registered> registered;  ///< by handle
  std::uint64_t handles = 0;
  std::vector<std::unique_ptr<ncclComm>> comms;  ///< also those that ended: streams may know of them
};

State& state() {
  static State all;
  return all;
}

struct Group {
  ncclComm* comm = nullptr;
  void* stream = nullptr;
  std::vector<Post> posts;
  bool begun = false;
};
thread_local int depth = 0;
thread_local Group open_group;

/// Once for each rule.
void violate(const std::string& what) {
  if (state().rules.deadly) {
    std::fprintf(stderr, "nccl double: %s\n", what.c_str());
    std::abort();
  }
  std::vector<std::string>& known = state().record.violations;
  if (std::find(known.begin(), known.end(), what) == known.end()) known.push_back(what);
}

constexpr const char* peer_is_gone = "connection closed by remote peer";

std::string of_rank(const ncclComm* comm) { return "rank " + std::to_string(comm->rank) + ": "; }

/// Rules of any call but those that ask for the state or abort.
bool usable(ncclComm* comm, const char* call) {
  if (comm->aborted) violate(of_rank(comm) + call + " after an abort");
  if (comm->finalised) violate(of_rank(comm) + call + " after the end");
  if (comm->in_progress > 0) violate(of_rank(comm) + call + " while another call is in progress");
  return !comm->aborted && !comm->finalised;
}

bool is_registered(const void* at, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return std::any_of(state().registered.begin(), state().registered.end(), [&](const auto& entry) {
    const Registered& memory = entry.second;
    return memory.begin <= address && address + bytes <= memory.begin + memory.bytes;
  });
}

/// With a communicator its registrations end; how many there were.
std::size_t forget_memory(const ncclComm* comm) {
  return std::erase_if(state().registered, [comm](const auto& entry) { return entry.second.comm == comm; });
}

ncclResult_t add(const Post& post, ncclComm* comm, void* stream, const char* call) {
  const std::scoped_lock lock(gpu::mutex());
  if (!usable(comm, call)) return ncclInvalidUsage;
  if (depth == 0) violate(of_rank(comm) + call + " outside of a group");
  if (post.bytes == 0) violate(of_rank(comm) + call + " of no bytes");
  if (post.peer < 0 || post.peer >= comm->ranks || post.peer == comm->rank) {
    violate(of_rank(comm) + call + " with rank " + std::to_string(post.peer));
  }
  if (!gpu::is_device_memory(post.memory, post.bytes)) violate(of_rank(comm) + call + " beyond device memory");
  if (state().rules.registered_only && !is_registered(post.memory, post.bytes)) {
    violate(of_rank(comm) + call + " of memory that is not registered");
  }
  Group& group = open_group;
  if (group.comm != nullptr && (group.comm != comm || group.stream != stream)) {
    violate(of_rank(comm) + "a group of several communicators or streams");
  }
  group.comm = comm;
  group.stream = stream;
  group.posts.push_back(post);
  return ncclSuccess;
}

void begin(Group& group) {
  group.begun = true;
  for (Post& post : group.posts) {
    if (post.incoming) continue;
    post.number = ++group.comm->sends[post.peer];
    group.comm->mail->put(post.peer, {post.memory, post.bytes});
  }
}

/// Messages of a pair meet in their order; sizes that differ never do.
bool meets(const ncclComm& comm, const Post& post) {
  if (!post.incoming) return comm.mail->taken_by(post.peer) >= post.number;
  const std::optional<std::size_t> sent = comm.mail->next_from(post.peer);
  if (!sent) return false;
  if (*sent != post.bytes) {
    violate("rank " + std::to_string(post.peer) + " sends " + std::to_string(*sent) + " bytes, rank " +
            std::to_string(comm.rank) + " receives " + std::to_string(post.bytes));
    return false;
  }
  comm.mail->take(post.peer, post.memory);
  ++state().record.taken;
  return true;
}

/// Whether all of the group's messages have met.
bool attempt(Group& group) {
  ncclComm& comm = *group.comm;
  if (!comm.mail) {
    violate(of_rank(&comm) + "ended before all groups were done");
    return true;
  }
  if (!group.begun) begin(group);
  comm.mail->look();
  std::set<std::pair<bool, int>> waiting;  ///< directions in which an earlier message waits
  for (Post& post : group.posts) {
    if (post.met || waiting.count({post.incoming, post.peer}) > 0) continue;
    post.met = meets(comm, post);
    if (post.met) continue;
    waiting.insert({post.incoming, post.peer});
    if (comm.mail->lost(post.peer)) comm.last_error = peer_is_gone;
  }
  return waiting.empty();
}

}  // namespace

namespace orch::test::nccl {

void reset(const Rules& rules) {
  const std::scoped_lock lock(gpu::mutex());
  state() = {};
  state().rules = rules;
}

Record record() {
  const std::scoped_lock lock(gpu::mutex());
  return state().record;
}

void fail_at(int rank, std::uint64_t group) { state().failing[rank] = group; }
void stall_at(int rank, std::uint64_t group) { state().stalled[rank] = group; }
void set_version(int device, int version) { state().versions[device] = version; }
void hang_abort(int rank) { state().hanging.insert(rank); }
void refuse_registration(int device) { state().refusing.insert(device); }

}  // namespace orch::test::nccl

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const std::scoped_lock lock(gpu::mutex());
  const auto found = state().versions.find(gpu::device_of_thread());
  *version = found == state().versions.end() ? NCCL_VERSION(2, 28, 0) : found->second;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 0, sizeof id->internal);  // real ones have zeros, too
  std::random_device any;
  const std::string text = orch::hex(std::uint64_t{any()} << 32U | any());
  std::copy(text.begin(), text.end(), id->internal + 1);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const std::scoped_lock lock(gpu::mutex());
  if (config->blocking != 0) violate("a blocking communicator");
  ncclComm* made = state().comms.emplace_back(std::make_unique<ncclComm>()).get();
  made->mail = nccl::open_mailbox(std::string(id.internal, sizeof id.internal), rank, ranks);
  if (!made->mail) {
    violate("rank " + std::to_string(rank) + " joins twice");
    return ncclInvalidUsage;
  }
  made->rank = rank;
  made->ranks = ranks;
  made->channels = config->maxCTAs > 0 ? config->maxCTAs : 8;
  gpu::take_memory(1 << 20);
  *comm = made;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* code) {
  const std::scoped_lock lock(gpu::mutex());
  *code = ncclSuccess;
  if (comm->aborted) {
    violate(of_rank(comm) + "asked after an abort");
    return ncclInvalidArgument;
  }
  comm->mail->look();
  const auto failing = state().failing.find(comm->rank);
  if (failing != state().failing.end() && comm->groups > failing->second) comm->last_error = peer_is_gone;
  if (!comm->last_error.empty()) {
    *code = ncclRemoteError;
  } else if (!comm->mail->complete()) {
    *code = ncclInProgress;
  } else if (comm->in_progress > 0) {
    --comm->in_progress;
    *code = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const std::scoped_lock lock(gpu::mutex());
  if (--depth > 0) return ncclSuccess;
  if (depth < 0) violate("a group ends that did not begin");
  Group done = std::exchange(open_group, {});
  if (done.comm == nullptr) return ncclSuccess;
  ncclComm* comm = done.comm;
  nccl::Record& record = state().record;
  std::size_t bytes = 0;
  for (const Post& post : done.posts) {
    bytes += post.bytes;
    if (!post.incoming) {
      ++record.messages;
      record.bytes += post.bytes;
    }
    if (comm->peers.insert(post.peer).second) gpu::take_memory(comm->channels << 13);  // transport buffers
  }
  record.largest_group = std::max(record.largest_group, bytes);
  if (bytes > state().rules.group_bytes) violate(of_rank(comm) + "a group of " + std::to_string(bytes) + " bytes");
  ++record.groups;
  const std::uint64_t number = comm->groups++;
  const bool stalled = state().stalled.count(comm->rank) > 0 && number >= state().stalled[comm->rank];
  // After an abort nothing of the communicator holds the stream up.
  gpu::enqueue(done.stream, [stalled, group = std::make_shared<Group>(done)] {
    return group->comm->aborted || (!stalled && attempt(*group));
  });
  comm->in_progress = 2;
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({false, peer, static_cast<std::byte*>(const_cast<void*>(from)), count}, comm, stream, "ncclSend");
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({true, peer, static_cast<std::byte*>(to), count}, comm, stream, "ncclRecv");
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::scoped_lock lock(gpu::mutex());
  if (!usable(comm, "ncclCommFinalize")) return ncclInvalidUsage;
  comm->finalised = true;
  comm->in_progress = 2;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::scoped_lock lock(gpu::mutex());
  if (!comm->finalised || comm->in_progress > 0) violate(of_rank(comm) + "destroyed before its end");
  if (forget_memory(comm) > 0) violate(of_rank(comm) + "destroyed while memory is registered");
  comm->mail.reset();
  state().record.left.push_back(comm->rank);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const bool hangs = [comm] {
    const std::scoped_lock lock(gpu::mutex());
    return state().hanging.count(comm->rank) > 0;
  }();
  if (hangs) std::this_thread::sleep_for(std::chrono::seconds(7));
  const std::scoped_lock lock(gpu::mutex());
  if (comm->aborted) violate(of_rank(comm) + "aborted twice");
  comm->aborted = true;
  forget_memory(comm);
  comm->mail.reset();
  state().record.aborted.push_back(comm->rank);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclRemoteError ? "remote process exited or there was a network error" : "unhandled error";
}

const char* ncclGetLastError(ncclComm_t comm) { return comm == nullptr ? "" : comm->last_error.c_str(); }

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  *memory = orch::runtime::device::allocate(bytes);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* memory) {
  const std::scoped_lock lock(gpu::mutex());
  if (is_registered(memory, 1)) violate("memory is freed that is registered");
  orch::runtime::device::release(static_cast<std::byte*>(memory));
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  const std::scoped_lock lock(gpu::mutex());
  if (state().refusing.count(gpu::device_of_thread()) > 0) return ncclInvalidUsage;
  if (!usable(comm, "ncclCommRegister")) return ncclInvalidUsage;
  *handle = reinterpret_cast<void*>(++state().handles);
  state().registered[*handle] = {comm, reinterpret_cast<std::uintptr_t>(memory), bytes};
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const std::scoped_lock lock(gpu::mutex());
  static_cast<void>(comm);
  if (state().registered.erase(handle) == 0) violate("memory is deregistered that is not registered");
  return ncclSuccess;
}

}  // extern "C"
