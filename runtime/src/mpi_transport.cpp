#include "orchmllm/runtime/mpi_transport.hpp"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <exception>
#include <limits>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "orchmllm/base/error.hpp"
#include "orchmllm/runtime/activity.hpp"
#include "orchmllm/runtime/agreement.hpp"
#include "orchmllm/runtime/awaited.hpp"

namespace orch::runtime {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

/// Throws TransportError with MPI's own words.
void require(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw TransportError(what + ": " + std::string(text.data(), static_cast<std::size_t>(length)));
}

int to_int(std::size_t value) { return static_cast<int>(value); }

/// What is under way of one call, and with whom.
struct Pending {
  std::vector<MPI_Request> requests;
  std::vector<Message> messages;
};

}  // namespace

struct MpiTransport::State {
  MpiOptions options;
  bool finalise = false;
  MPI_Comm data = MPI_COMM_NULL;
  MPI_Comm control = MPI_COMM_NULL;  ///< questions and answers of ranks that wait too long
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::deque<std::string> texts;  ///< said, for as long as somebody may read them

  static constexpr int question = 1;
  static constexpr int answer = 2;
  static constexpr int farewell = 3;  ///< why a rank gives up

  /// Sends a text that nobody waits for to have left: who should read it may be dead. So it stays.
  void say(std::uint32_t peer, int tag, const std::string& text) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(text.data(), to_int(text.size()), MPI_CHAR, static_cast<int>(peer), tag, control, &request);
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }

  /// A text that has come with this tag, and from whom.
  [[nodiscard]] std::optional<std::pair<std::uint32_t, std::string>> hear(int tag) {
    int came = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, control, &came, &status) != MPI_SUCCESS || came == 0) return std::nullopt;
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::string text(static_cast<std::size_t>(length), ' ');
    MPI_Recv(text.data(), length, MPI_CHAR, status.MPI_SOURCE, tag, control, MPI_STATUS_IGNORE);
    return std::pair(static_cast<std::uint32_t>(status.MPI_SOURCE), std::move(text));
  }

  /// Answers those who ask what this rank waits for.
  void answer_questions(const std::string& waiting) {
    while (const auto asked = hear(question)) say(asked->first, answer, texts.emplace_back(waiting.substr(0, 400)));
  }

  /// Asks all ranks; who does not answer within a while is named, and what the others say.
  [[nodiscard]] std::string ask_around(const std::string& waiting) {
    const Seconds patience = std::clamp(options.timeout / 4, Seconds(0.2), Seconds(2));
    std::set<std::uint32_t> silent;
    for (std::uint32_t peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      silent.insert(peer);
      say(peer, question, texts.emplace_back());
    }
    std::string said;
    const auto begin = Clock::now();
    while (!silent.empty() && Clock::now() - begin < patience) {
      answer_questions(waiting);
      const auto heard = hear(answer);
      if (!heard) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      const auto& [peer, text] = *heard;
      if (silent.erase(peer) > 0 && said.size() < 2000) said += "; rank " + std::to_string(peer) + ": " + text;
    }
    return (silent.empty() ? "; every rank answers" : "; no answer from " + ranks_text(silent)) + said;
  }

  [[noreturn]] void time_out(const std::string& what, const Pending& pending) {
    const std::string waiting = waiting_text(what, pending.messages);
    throw TransportError(waiting + ", in vain for " + seconds_text(options.timeout.count()) + ask_around(waiting));
  }

  /// What completed of an all-to-all; throws for a message that is not as long as both plans say.
  static void finish(Pending& pending, std::span<const int> indices, std::span<const MPI_Status> statuses,
                     const std::string& what) {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      Message& message = pending.messages[static_cast<std::size_t>(indices[i])];
      message.done = true;
      if (!message.incoming) continue;
      int bytes = 0;
      MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
      if (static_cast<std::size_t>(bytes) == message.bytes) continue;
      throw TransportError(what + ": rank " + std::to_string(message.peer) + " sent " + std::to_string(bytes) +
                           " bytes, expected " + std::to_string(message.bytes));
    }
  }

  /// Polls until everything is done. Whoever waits for longer than a message takes leaves the core to others.
  void wait(const std::string& what, Pending& pending) {
    const std::size_t count = pending.requests.size();
    std::vector<int> indices(count);
    std::vector<MPI_Status> statuses(count);
    auto last = Clock::now();
    auto asked = last;
    for (std::size_t left = count; left > 0;) {
      int completed = 0;
      const int code =
          MPI_Testsome(to_int(count), pending.requests.data(), &completed, indices.data(), statuses.data());
      if (code == MPI_ERR_IN_STATUS)
        report_failed(pending, std::span(indices).first(static_cast<std::size_t>(completed)), statuses, what);
      require(code, what);
      const auto now = Clock::now();
      if (completed > 0) {
        finish(pending, std::span(indices).first(static_cast<std::size_t>(completed)), statuses, what);
        left -= static_cast<std::size_t>(completed);
        last = now;
        continue;
      }
      if (now - last > options.timeout) time_out(what, pending);
      if (now - last < options.spin) continue;  // MPI itself yields where cores are short
      if (now - last > std::chrono::milliseconds(100) && now - asked > std::chrono::milliseconds(20)) {
        const std::string waiting = waiting_text(what, pending.messages);
        set_activity(waiting);
        answer_questions(waiting);
        asked = now;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  [[noreturn]] static void report_failed(const Pending& pending, std::span<const int> indices,
                                         std::span<const MPI_Status> statuses, const std::string& what) {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (statuses[i].MPI_ERROR == MPI_SUCCESS) continue;
      const auto index = static_cast<std::size_t>(indices[i]);
      require(statuses[i].MPI_ERROR, what + ", rank " + std::to_string(pending.messages[index].peer));
    }
    throw TransportError(what + ": a message failed");
  }

  /// Begins one collective and waits for it.
  template <class Begin>
  void collective(const std::string& what, Begin&& begin) {
    Pending pending;
    pending.requests.resize(1, MPI_REQUEST_NULL);
    require(begin(&pending.requests[0]), what);
    pending.messages.resize(1);
    Message& all = pending.messages[0];
    all.done = true;  // no peer in particular: awaited_text() has nothing to say
    wait(what, pending);
  }
};

MpiTransport::MpiTransport(int& argc, char**& argv, const MpiOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised == 0) {
    int provided = 0;
    require(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "initialising MPI");
    state_->finalise = true;
    if (provided < MPI_THREAD_FUNNELED) throw TransportError("this MPI is not made for programs with threads");
  }
  require(MPI_Comm_dup(MPI_COMM_WORLD, &state_->data), "initialising MPI");
  require(MPI_Comm_dup(MPI_COMM_WORLD, &state_->control), "initialising MPI");
  MPI_Comm_set_errhandler(state_->data, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(state_->control, MPI_ERRORS_RETURN);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(state_->data, &rank);
  MPI_Comm_size(state_->data, &ranks);
  state_->rank = static_cast<std::uint32_t>(rank);
  state_->ranks = static_cast<std::uint32_t>(ranks);
}

MpiTransport::~MpiTransport() {
  MPI_Comm_free(&state_->control);
  MPI_Comm_free(&state_->data);
  if (state_->finalise) MPI_Finalize();
}

std::uint32_t MpiTransport::rank() const { return state_->rank; }
std::uint32_t MpiTransport::ranks() const { return state_->ranks; }

std::string MpiTransport::host() const {
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  return {name.data(), static_cast<std::size_t>(length)};
}

std::vector<std::string> MpiTransport::all_gather(const std::string& what, const std::string& mine) {
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(state_->ranks);
  state_->collective(what, [&](MPI_Request* request) {
    return MPI_Iallgather(&length, 1, MPI_UINT64_T, lengths.data(), 1, MPI_UINT64_T, state_->data, request);
  });
  std::vector<int> counts;
  std::vector<int> offsets;
  std::uint64_t total = 0;
  for (const std::uint64_t size : lengths) {
    counts.push_back(static_cast<int>(size));
    offsets.push_back(static_cast<int>(total));
    total += size;
    if (total > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
      throw TransportError(what + ": all ranks together say more than 2 GiB");
    }
  }
  std::string all(total, ' ');
  state_->collective(what, [&](MPI_Request* request) {
    return MPI_Iallgatherv(mine.data(), static_cast<int>(length), MPI_CHAR, all.data(), counts.data(), offsets.data(),
                           MPI_CHAR, state_->data, request);
  });
  std::vector<std::string> texts;
  for (std::uint32_t rank = 0; rank < state_->ranks; ++rank) {
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[rank]), lengths[rank]));
  }
  return texts;
}

void MpiTransport::all_to_all(const std::string& what, std::span<const SendRun> sends,
                              std::span<const ReceiveRun> receives) {
  Pending pending;
  const auto each_chunk = [&](auto bytes, auto&& begin) {
    for (std::size_t at = 0; at < bytes.size(); at += state_->options.chunk_bytes) {
      begin(bytes.subspan(at, std::min(state_->options.chunk_bytes, bytes.size() - at)));
    }
  };
  const auto add = [&](std::uint32_t peer, std::size_t bytes, bool incoming) {
    pending.messages.push_back({peer, bytes, incoming, false});
    return &pending.requests.emplace_back(MPI_REQUEST_NULL);
  };
  for (const ReceiveRun& run : receives) {
    if (run.peer == state_->rank) continue;
    each_chunk(run.bytes, [&](std::span<std::byte> chunk) {
      require(MPI_Irecv(chunk.data(), to_int(chunk.size()), MPI_BYTE, static_cast<int>(run.peer),
                        static_cast<int>(run.number), state_->data, add(run.peer, chunk.size(), true)),
              what + ", from rank " + std::to_string(run.peer));
    });
  }
  for (const SendRun& run : sends) {
    if (run.peer == state_->rank) continue;
    each_chunk(run.bytes, [&](std::span<const std::byte> chunk) {
      require(MPI_Isend(chunk.data(), to_int(chunk.size()), MPI_BYTE, static_cast<int>(run.peer),
                        static_cast<int>(run.number), state_->data, add(run.peer, chunk.size(), false)),
              what + ", to rank " + std::to_string(run.peer));
    });
  }
  for (const SendRun& from : sends) {
    if (from.peer != state_->rank) continue;
    for (const ReceiveRun& to : receives) {
      if (to.peer != state_->rank || to.number != from.number) continue;
      std::copy(from.bytes.begin(), from.bytes.end(), to.bytes.begin());
    }
  }
  state_->wait(what, pending);
}

void MpiTransport::barrier(const std::string& what) {
  state_->collective(what, [&](MPI_Request* request) { return MPI_Ibarrier(state_->data, request); });
}

void MpiTransport::attend(const std::string& waiting) {
  state_->answer_questions(waiting);
  if (const auto heard = state_->hear(State::farewell)) {
    throw TransportError("rank " + std::to_string(heard->first) + " gave up: " + heard->second);
  }
}

std::string MpiTransport::ask_around(const std::string& waiting) { return state_->ask_around(waiting); }

void MpiTransport::give_up(const std::string& why) noexcept {
  try {
    const std::string& text = state_->texts.emplace_back(why.substr(0, 2000));
    for (std::uint32_t peer = 0; peer < state_->ranks; ++peer) {
      if (peer != state_->rank) state_->say(peer, State::farewell, text);
    }
  } catch (const std::exception&) {  // without memory for the words: they are left out
  }
}

void MpiTransport::abort(int exit_code) {
  MPI_Abort(state_->data, exit_code);
  std::_Exit(exit_code);  // MPI_Abort need not end the process that calls it
}

}  // namespace orch::runtime
