#include "orchmllm/runtime/nccl_transport.hpp"

#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "orchmllm/base/error.hpp"
#include "orchmllm/runtime/activity.hpp"
#include "orchmllm/runtime/agreement.hpp"
#include "orchmllm/runtime/awaited.hpp"
#include "orchmllm/runtime/message_groups.hpp"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "the NCCL transport needs NCCL 2.18 or later"
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
#define ORCHMLLM_NCCL_REGISTERS 1
#endif

namespace orch::runtime {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

std::string version_text(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." + std::to_string(code % 100);
}

/// What ranks must know of each other before they join: two of them on one GPU do not get along. Machines may share a
/// name, but not a boot.
std::string place_text(const std::string& host) {
  const char* other_host = std::getenv("NCCL_HOSTID");
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return host + (other_host == nullptr ? "" : std::string(" as ") + other_host) + ", GPU " + device::bus_id() +
         ", boot " + boot.substr(0, 8);
}

/// From 2.30 on NCCL lets ranks share a GPU, parts of one (MIG) too, where this variable says so.
bool shares_devices(int library) {
  const char* shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return library >= NCCL_VERSION(2, 30, 0) && shared != nullptr && std::string(shared) == "1";
}

/// An end of a communicator, which NCCL puts no bound to. If it does not come back within a while, it is left alone
/// with its thread, and all memory of the GPU with it.
template <class Call>
void end_within_bounds(Call call) noexcept {
  try {
    auto done = std::make_shared<std::promise<void>>();
    std::future<void> end = done->get_future();
    std::thread([call, done] {
      call();
      done->set_value();
    }).detach();
    if (end.wait_for(Seconds(5)) == std::future_status::ready) return;
  } catch (const std::exception&) {  // no thread, no memory for one
  }
  device::leave_memory();
}

}  // namespace

struct NcclTransport::State {
  State(ControlPlane& given_control, device::Queue& given_queue, const NcclOptions& given_options)
      : control(given_control), queue(given_queue), options(given_options) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ControlPlane& control;
  device::Queue& queue;
  NcclOptions options;
  ncclComm_t comm = nullptr;
  bool broken = false;
  bool in_group = false;
  bool registers = false;  ///< memory of messages, on all ranks or on none
  int library = 0;
  device::Stream stream;
  std::deque<device::Event> events;  ///< one behind each group under way
  NcclMemory memory;
  std::set<std::uint32_t> peers;

  /// Memory that allocate() gave.
  struct Block {
    std::size_t bytes = 0;
    void* handle = nullptr;  ///< of its registration
    bool by_nccl = false;
  };
  std::map<std::byte*, Block> blocks;

  [[nodiscard]] cudaStream_t native() const { return static_cast<cudaStream_t>(stream.native()); }

  /// NCCL's own words for what went wrong.
  [[nodiscard]] std::string words(ncclResult_t code) const {
    std::string text = ncclGetErrorString(code);
    const char* last = comm == nullptr ? nullptr : ncclGetLastError(comm);
    if (last != nullptr && *last != 0) text += std::string(" (") + last + ")";
    return text;
  }

  /// Tells the others why, and ends the communicator, so that nothing of this rank waits on the GPU any more.
  [[noreturn]] void fail(const std::string& why, bool tell) {
    broken = true;
    if (tell) control.give_up(why);  // first: an abort may wait for what peers on the same host do
    abort_communicator();
    throw TransportError(why);
  }

  void abort_communicator() noexcept {
    if (comm == nullptr) return;
    // Within a group an abort would be put off until its end.
    if (std::exchange(in_group, false)) static_cast<void>(ncclGroupEnd());
    end_within_bounds([gone = std::exchange(comm, nullptr)] { static_cast<void>(ncclCommAbort(gone)); });
  }

  /// A call is accepted at once or under way; anything else is an error of this rank or a peer.
  template <class Waiting>
  void require(ncclResult_t code, Waiting&& waiting) {
    if (code == ncclSuccess || code == ncclInProgress) return;
    const std::string text = waiting();
    const std::string reason = words(code);
    fail(text + ": NCCL: " + reason + control.ask_around(text), true);
  }

  /// What the communicator says of itself; under way counts as well.
  template <class Waiting>
  ncclResult_t require_healthy(Waiting&& waiting) {
    ncclResult_t code = ncclSuccess;
    require(ncclCommGetAsyncError(comm, &code), waiting);
    require(code, waiting);
    return code;
  }

  /// The control plane's own errors say why other ranks gave up.
  void attend(const std::string& waiting) {
    try {
      control.attend(waiting);
    } catch (const TransportError& error) {
      fail(waiting + ": " + error.what(), false);
    }
  }

  /// Polls until `ready()`, NCCL's errors and the others' in mind: whether all is done, and how much.
  template <class Ready, class Waiting>
  void wait(Ready&& ready, Waiting&& waiting) {
    auto last = Clock::now();
    auto attended = last;
    std::uint64_t done = 0;
    while (true) {
      const std::pair<bool, std::uint64_t> state = ready();
      if (state.first) return;
      const auto now = Clock::now();
      if (state.second != done) {
        done = state.second;
        last = now;
        continue;
      }
      static_cast<void>(require_healthy(waiting));
      if (now - last > options.timeout) {
        const std::string text = waiting();
        fail(text + ", in vain for " + seconds_text(options.timeout.count()) + control.ask_around(text), true);
      }
      if (now - last < std::chrono::milliseconds(2)) {
        std::this_thread::yield();
        continue;
      }
      if (now - attended > std::chrono::milliseconds(20)) {
        const std::string text = waiting();
        if (now - last > std::chrono::milliseconds(100)) set_activity(text);
        attend(text);
        attended = now;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  /// Until the communicator has taken what it was given: no other call may follow before. `done`: groups, which go on.
  template <class Waiting, class Done>
  void settle(Waiting&& waiting, Done&& done) {
    wait([&] { return std::pair(require_healthy(waiting) == ncclSuccess, done()); }, waiting);
  }

  void join() {
    require_version();
    require_own_devices();
    ncclUniqueId id{};
    std::vector<std::string> said = agree(control, "joining NCCL", [&] {
      if (control.rank() != 0) return std::string();
      if (const ncclResult_t code = ncclGetUniqueId(&id); code != ncclSuccess) {
        throw TransportError(std::string("NCCL: ") + ncclGetErrorString(code));
      }
      return std::string(id.internal, sizeof id.internal);
    });
    std::memcpy(id.internal, said[0].data(), std::min(said[0].size(), sizeof id.internal));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (options.max_channels > 0) {
      config.minCTAs = 1;
      config.maxCTAs = options.max_channels;
    }
    const std::uint64_t before = device::memory_info().free;
    const auto waiting = [] { return std::string("joining NCCL: waits for all ranks"); };
    require(
        ncclCommInitRankConfig(&comm, static_cast<int>(control.ranks()), id, static_cast<int>(control.rank()), &config),
        waiting);
    settle(waiting, [] { return std::uint64_t{0}; });
    memory.communicator_bytes = taken_since(before);
    agree_on_registration();
  }

  /// All ranks register what they send and receive, or none does: NCCL allows no mixture.
  void agree_on_registration() {
#ifdef ORCHMLLM_NCCL_REGISTERS
    if (!options.register_buffers || library < NCCL_VERSION(2, 19, 0)) return;
    const std::vector<std::string> said = agree(control, "registering memory", [&] {
      constexpr std::size_t bytes = std::size_t{2} << 20U;
      void* data = nullptr;
      void* handle = nullptr;
      if (ncclMemAlloc(&data, bytes) != ncclSuccess) return std::string("cannot");
      // Where registration is turned off, NCCL says yes, and gives no handle.
      const bool can = ncclCommRegister(comm, data, bytes, &handle) == ncclSuccess && handle != nullptr;
      if (can) static_cast<void>(ncclCommDeregister(comm, handle));
      static_cast<void>(ncclMemFree(data));
      return std::string(can ? "can" : "cannot");
    });
    registers = std::all_of(said.begin(), said.end(), [](const std::string& text) { return text == "can"; });
#endif
  }

  [[nodiscard]] static std::uint64_t taken_since(std::uint64_t free_before) {
    const std::uint64_t now = device::memory_info().free;
    return now < free_before ? free_before - now : 0;
  }

  void require_version() {
    require_equal("NCCL's version", agree(control, "comparing versions of NCCL", [&] {
                    if (ncclGetVersion(&library) != ncclSuccess || library < NCCL_VERSION(2, 18, 0)) {
                      throw InvalidInput("NCCL " + version_text(library) + ": 2.18 or later is needed");
                    }
                    return version_text(library);
                  }));
  }

  void require_own_devices() {
    const std::vector<std::string> places = agree(control, "comparing GPUs", [&] {
      return shares_devices(library) ? std::string("shared") : place_text(control.host());
    });
    if (std::set(places.begin(), places.end()) == std::set<std::string>{"shared"}) return;
    std::map<std::string, std::set<std::uint32_t>> ranks_of;
    for (std::uint32_t rank = 0; rank < places.size(); ++rank) ranks_of[places[rank]].insert(rank);
    for (const auto& [place, ranks] : ranks_of) {
      if (ranks.size() == 1) continue;
      throw AgreedError(ranks_text(ranks) + " have one GPU (" + place +
                            "): NCCL needs one for each rank, or a different NCCL_HOSTID for each, to try it out",
                        2);
    }
  }

  /// Puts a group into the stream; it may wait for connections to peers that are new.
  template <class Waiting, class Done>
  void launch(const MessageGroup& group, Waiting&& waiting, Done&& done) {
    require(ncclGroupStart(), waiting);
    in_group = true;
    for (const SendRun& run : group.sends) {
      require(ncclSend(run.bytes.data(), run.bytes.size(), ncclInt8, static_cast<int>(run.peer), comm, native()),
              waiting);
    }
    for (const ReceiveRun& run : group.receives) {
      require(ncclRecv(run.bytes.data(), run.bytes.size(), ncclInt8, static_cast<int>(run.peer), comm, native()),
              waiting);
    }
    in_group = false;
    require(ncclGroupEnd(), waiting);
    settle(waiting, done);
  }

  [[nodiscard]] bool meets_new_peers(const MessageGroup& group) {
    const std::size_t known = peers.size();
    for (const SendRun& run : group.sends) peers.insert(run.peer);
    for (const ReceiveRun& run : group.receives) peers.insert(run.peer);
    return peers.size() > known;
  }

  void copy_own(std::span<const SendRun> sends, std::span<const ReceiveRun> receives) {
    for (const SendRun& from : sends) {
      if (from.peer != control.rank() || from.bytes.empty()) continue;
      for (const ReceiveRun& to : receives) {
        if (to.peer != control.rank() || to.number != from.number) continue;
        device::copy(to.bytes.data(), from.bytes.data(), from.bytes.size(), stream);
      }
    }
  }

  void exchange(const std::string& what, std::span<const SendRun> sends, std::span<const ReceiveRun> receives) {
    if (broken) throw TransportError(what + ": NCCL was aborted before");
    const std::vector<MessageGroup> groups =
        message_groups(control.rank(), control.ranks(), sends, receives, options.group_bytes, options.slice_bytes);
    std::vector<std::size_t> end_of_group;
    std::vector<Message> messages;
    for (const MessageGroup& group : groups) {
      for (const SendRun& run : group.sends) messages.push_back({run.peer, run.bytes.size(), false, false});
      for (const ReceiveRun& run : group.receives) messages.push_back({run.peer, run.bytes.size(), true, false});
      end_of_group.push_back(messages.size());
    }
    while (events.size() < groups.size() + 1) events.emplace_back();
    std::size_t launched = 0;
    std::size_t done = 0;
    const auto note_done = [&] {
      while (done < launched && events[done].done()) {
        const std::size_t first = done == 0 ? 0 : end_of_group[done - 1];
        for (std::size_t i = first; i < end_of_group[done]; ++i) messages[i].done = true;
        ++done;
      }
      return std::uint64_t{done};
    };
    const auto waiting = [&] { return waiting_text(what, messages); };

    stream.wait(queue.ready);
    copy_own(sends, receives);
    for (const MessageGroup& group : groups) {
      // New connections take memory; others do not, and are not asked about.
      const bool grows = meets_new_peers(group);
      const std::uint64_t before = grows ? device::memory_info().free : 0;
      launch(group, waiting, note_done);
      events[launched++].record(stream);
      if (grows) memory.peer_bytes += taken_since(before);
    }
    memory.peers = static_cast<std::uint32_t>(peers.size());
    device::Event& end = events[groups.size()];
    end.record(stream);
    wait(
        [&] {
          const std::uint64_t groups_done = note_done();
          return std::pair(end.done(), groups_done);
        },
        waiting);
    // An error of the last moment is no success.
    static_cast<void>(require_healthy(waiting));
  }

  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    std::byte* data = nullptr;
    Block block{bytes, nullptr, false};
#ifdef ORCHMLLM_NCCL_REGISTERS
    if (registers && !broken) {
      void* of_nccl = nullptr;
      require_memory(ncclMemAlloc(&of_nccl, bytes), "memory for messages", bytes);
      require_memory(ncclCommRegister(comm, of_nccl, bytes, &block.handle), "registering messages", bytes);
      block.by_nccl = true;
      memory.registered_bytes += bytes;
      data = static_cast<std::byte*>(of_nccl);
    }
#endif
    if (data == nullptr) data = device::allocate(bytes);
    blocks[data] = block;
    return data;
  }

  void require_memory(ncclResult_t code, const char* what, std::size_t bytes) const {
    if (code == ncclSuccess) return;
    throw DeviceError(std::string(what) + " of " + std::to_string(bytes) + " bytes: NCCL: " + words(code));
  }

  void release(std::byte* data) noexcept {
    const auto found = blocks.find(data);
    if (found == blocks.end()) return;
    const Block block = found->second;
    blocks.erase(found);
#ifdef ORCHMLLM_NCCL_REGISTERS
    if (block.by_nccl) {
      memory.registered_bytes -= block.bytes;
      if (device::memory_is_left()) return;
      if (comm != nullptr && block.handle != nullptr) static_cast<void>(ncclCommDeregister(comm, block.handle));
      static_cast<void>(ncclMemFree(data));
      return;
    }
#endif
    device::release(data);
  }

  /// Orderly where all went well; bounded in any case.
  void leave() noexcept {
    if (comm == nullptr) return;
    if (std::uncaught_exceptions() == 0) {
      ncclResult_t code = ncclCommFinalize(comm);
      const auto begin = Clock::now();
      while (code == ncclInProgress && Clock::now() - begin < std::min(options.timeout, Seconds(5))) {
        if (ncclCommGetAsyncError(comm, &code) != ncclSuccess) code = ncclInternalError;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      if (code == ncclSuccess) {
        end_within_bounds([gone = std::exchange(comm, nullptr)] { static_cast<void>(ncclCommDestroy(gone)); });
        return;
      }
    }
    abort_communicator();
  }
};

NcclTransport::NcclTransport(ControlPlane& control, device::Queue& queue, const NcclOptions& options)
    : state_(std::make_unique<State>(control, queue, options)) {
  try {
    state_->join();
  } catch (...) {
    state_->abort_communicator();
    throw;
  }
}

NcclTransport::~NcclTransport() { state_->leave(); }

std::uint32_t NcclTransport::rank() const { return state_->control.rank(); }
std::uint32_t NcclTransport::ranks() const { return state_->control.ranks(); }
std::string NcclTransport::host() const { return state_->control.host(); }

std::vector<std::string> NcclTransport::all_gather(const std::string& what, const std::string& mine) {
  return state_->control.all_gather(what, mine);
}

void NcclTransport::all_to_all(const std::string& what, std::span<const SendRun> sends,
                               std::span<const ReceiveRun> receives) {
  try {
    state_->exchange(what, sends, receives);
  } catch (const DeviceError& error) {
    state_->fail(what + ": " + error.what(), true);
  }
}

void NcclTransport::barrier(const std::string& what) { state_->control.barrier(what); }

void NcclTransport::abort(int exit_code) {
  state_->control.abort(exit_code);
  std::_Exit(exit_code);  // never: g++ does not see that a virtual function does not return
}

std::byte* NcclTransport::allocate(std::size_t bytes) { return state_->allocate(bytes); }
void NcclTransport::release(std::byte* memory) noexcept { state_->release(memory); }

NcclMemory NcclTransport::memory() const { return state_->memory; }
std::string NcclTransport::version() const { return version_text(state_->library); }

}  // namespace orch::runtime
