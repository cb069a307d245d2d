#include "nccl_double.hpp"

#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "device_double.hpp"
#include "orchmllm/runtime/device.hpp"

namespace {

using namespace orch::test;

struct Post {
  bool incoming = false;
  int peer = 0;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<bool> met = std::make_shared<bool>(false);
};

struct World;

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank = 0;
  int ranks = 0;
  int device = 0;
  bool aborted = false;
  bool finalised = false;
  int in_progress = 0;  ///< answers that still say so
  std::uint64_t groups = 0;
  std::set<int> peers;
  std::string last_error;
};

namespace {

/// Communicators with one id.
struct World {
  int ranks = 0;
  std::set<int> joined;
  std::map<std::pair<int, int>, std::deque<Post>> sends, receives;  ///< (from, to), posted and not met
};

struct State {
  nccl::Rules rules;
  nccl::Record record;
  std::map<std::string, std::shared_ptr<World>> worlds;
  std::map<int, std::uint64_t> failing, stalled;
  std::map<int, int> versions;
  std::set<int> refusing;  ///< devices, to register
  std::uint64_t ids = 0;
  std::map<void*, std::pair<std::uintptr_t, std::size_t>> registered;  ///< handle → memory
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
};
thread_local int depth = 0;
thread_local Group group;

void violate(const std::string& what) { state().record.violations.push_back(what); }

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
    const auto& [begin, size] = entry.second;
    return begin <= address && address + bytes <= begin + size;
  });
}

ncclResult_t add(Post post, ncclComm* comm, void* stream, const char* call) {
  const std::scoped_lock lock(gpu::mutex());
  if (!usable(comm, call)) return ncclInvalidUsage;
  const void* memory = post.incoming ? post.to : post.from;
  if (depth == 0) violate(of_rank(comm) + call + " outside of a group");
  if (post.bytes == 0) violate(of_rank(comm) + call + " of no bytes");
  if (post.peer < 0 || post.peer >= comm->ranks || post.peer == comm->rank) {
    violate(of_rank(comm) + call + " with rank " + std::to_string(post.peer));
  }
  if (!gpu::is_device_memory(memory, post.bytes)) violate(of_rank(comm) + call + " beyond device memory");
  if (state().rules.registered_only && !is_registered(memory, post.bytes)) {
    violate(of_rank(comm) + call + " of memory that is not registered");
  }
  if (group.comm != nullptr && (group.comm != comm || group.stream != stream)) {
    violate(of_rank(comm) + "a group of several communicators or streams");
  }
  group.comm = comm;
  group.stream = stream;
  group.posts.push_back(std::move(post));
  return ncclSuccess;
}

/// Messages of a pair meet in their order; sizes that differ never do.
void match(World& world, int from, int to) {
  auto& sends = world.sends[{from, to}];
  auto& receives = world.receives[{from, to}];
  while (!sends.empty() && !receives.empty()) {
    Post& send = sends.front();
    Post& receive = receives.front();
    if (send.bytes != receive.bytes) {
      const std::string text = "rank " + std::to_string(from) + " sends " + std::to_string(send.bytes) +
                               " bytes, rank " + std::to_string(to) + " receives " + std::to_string(receive.bytes);
      if (std::find(state().record.violations.begin(), state().record.violations.end(), text) ==
          state().record.violations.end()) {
        violate(text);
      }
      return;
    }
    std::memcpy(receive.to, send.from, send.bytes);
    *send.met = *receive.met = true;
    sends.pop_front();
    receives.pop_front();
  }
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

std::size_t unmet() {
  const std::scoped_lock lock(gpu::mutex());
  std::size_t count = 0;
  for (const auto& [id, world] : state().worlds) {
    for (const auto* side : {&world->sends, &world->receives}) {
      for (const auto& [pair, posts] : *side) count += posts.size();
    }
  }
  return count;
}

void fail_at(int rank, std::uint64_t group) { state().failing[rank] = group; }
void stall_at(int rank, std::uint64_t group) { state().stalled[rank] = group; }
void set_version(int device, int version) { state().versions[device] = version; }
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
  const std::scoped_lock lock(gpu::mutex());
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text = "id\0with zeros" + std::to_string(++state().ids);
  std::copy(text.begin(), text.end(), id->internal + 1);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const std::scoped_lock lock(gpu::mutex());
  if (config->blocking != 0) violate("a blocking communicator");
  auto& world = state().worlds[std::string(id.internal, sizeof id.internal)];
  if (!world) world = std::make_shared<World>();
  world->ranks = ranks;
  if (!world->joined.insert(rank).second) violate("rank " + std::to_string(rank) + " joins twice");
  ncclComm* made = state().comms.emplace_back(std::make_unique<ncclComm>()).get();
  made->world = world;
  made->rank = rank;
  made->ranks = ranks;
  made->device = gpu::device_of_thread();
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
  const auto failing = state().failing.find(comm->rank);
  if (failing != state().failing.end() && comm->groups > failing->second) {
    comm->last_error = "connection closed by remote peer";
    *code = ncclRemoteError;
  } else if (static_cast<int>(comm->world->joined.size()) < comm->ranks) {
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
  Group done = std::exchange(group, {});
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
    if (comm->peers.insert(post.peer).second) gpu::take_memory(1 << 16);  // transport buffers
  }
  record.largest_group = std::max(record.largest_group, bytes);
  if (bytes > state().rules.group_bytes) violate(of_rank(comm) + "a group of " + std::to_string(bytes) + " bytes");
  ++record.groups;
  const std::uint64_t number = comm->groups++;
  const bool stalled = state().stalled.count(comm->rank) > 0 && number >= state().stalled[comm->rank];
  // After an abort nothing of the communicator holds the stream up.
  const auto posted = std::make_shared<bool>(false);
  gpu::enqueue(done.stream, [comm, world = comm->world, posts = done.posts, stalled, posted] {
    return comm->aborted || (!stalled && [&] {
             if (!*posted) {
               *posted = true;
               for (const Post& post : posts) {
                 const auto pair = post.incoming ? std::pair(post.peer, comm->rank) : std::pair(comm->rank, post.peer);
                 (post.incoming ? world->receives : world->sends)[pair].push_back(post);
                 match(*world, pair.first, pair.second);
               }
             }
             return std::all_of(posts.begin(), posts.end(), [](const Post& post) { return *post.met; });
           }());
  });
  comm->in_progress = 2;
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({false, peer, from, nullptr, count}, comm, stream, "ncclSend");
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({true, peer, nullptr, to, count}, comm, stream, "ncclRecv");
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
  state().record.left.push_back(comm->rank);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::scoped_lock lock(gpu::mutex());
  if (comm->aborted) violate(of_rank(comm) + "aborted twice");
  comm->aborted = true;
  for (auto& [pair, posts] : comm->world->sends) {
    if (pair.first == comm->rank) posts.clear();
  }
  for (auto& [pair, posts] : comm->world->receives) {
    if (pair.second == comm->rank) posts.clear();
  }
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
  if (state().refusing.count(comm->device) > 0) return ncclInvalidUsage;
  if (!usable(comm, "ncclCommRegister")) return ncclInvalidUsage;
  *handle = reinterpret_cast<void*>(++state().handles);
  state().registered[*handle] = {reinterpret_cast<std::uintptr_t>(memory), bytes};
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const std::scoped_lock lock(gpu::mutex());
  static_cast<void>(comm);
  if (state().registered.erase(handle) == 0) violate("memory is deregistered that is not registered");
  return ncclSuccess;
}

}  // extern "C"
