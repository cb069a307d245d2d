#include "orchmllm/runtime/tcp_control.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "descriptor.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/runtime/agreement.hpp"
#include "orchmllm/runtime/awaited.hpp"
#include "orchmllm/version.hpp"

namespace orch::runtime {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::uint64_t longest_message = std::uint64_t{1} << 30U;
constexpr std::uint64_t longest_hello = 4096;
constexpr std::size_t longest_answer = 400;

enum class Kind : std::uint8_t {
  // of a client
  hello = 1,  ///< version, job, rank, ranks, host
  gather,     ///< call, what, text
  answer,     ///< what the rank waits for
  question,   ///< what the asker waits for
  farewell,   ///< why it gives up
  bye,        ///< it needs the store no more
  // of the store
  welcome,
  refused,   ///< why the job cannot begin
  gathered,  ///< call, texts
  asked,     ///< somebody wants to know what the rank waits for
  report,    ///< what the others answered
  gone,      ///< rank, why
};

void write_number(std::string& to, std::uint64_t value) {
  for (unsigned i = 0; i < 8; ++i) to += static_cast<char>(value >> (8 * i) & 0xffU);
}

std::uint64_t number_at(const std::string& from, std::size_t at) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < 8; ++i) value |= std::uint64_t{static_cast<unsigned char>(from[at + i])} << (8 * i);
  return value;
}

/// Numbers and texts of a message, one after the other; throws for one that ends too early.
class Fields {
 public:
  explicit Fields(const std::string& body) : body_(body) {}
  [[nodiscard]] std::uint64_t number() {
    require(8);
    const std::uint64_t value = number_at(body_, at_);
    at_ += 8;
    return value;
  }
  [[nodiscard]] std::string text() {
    const std::uint64_t length = number();
    require(length);
    std::string value = body_.substr(at_, length);
    at_ += length;
    return value;
  }

 private:
  void require(std::uint64_t bytes) const {
    if (body_.size() - at_ < bytes) throw TransportError("the store was sent a message that ends too early");
  }
  const std::string& body_;
  std::size_t at_ = 0;
};

void write_text(std::string& to, const std::string& text) {
  write_number(to, text.size());
  to += text;
}

struct Letter {
  Kind kind{};
  std::string body;
};

// "ORCHMLLM" as a number, kind, length: what every message begins with.
constexpr std::uint64_t magic = 0x4d4c4c4d4843524fULL;
constexpr std::size_t header_bytes = 24;

std::string packed(Kind kind, const std::string& body) {
  std::string bytes;
  write_number(bytes, magic);
  write_number(bytes, static_cast<std::uint64_t>(kind));
  write_number(bytes, body.size());
  return bytes + body;
}

/// A socket with what has not been sent and not been understood yet. Never blocks.
class Line {
 public:
  explicit Line(Descriptor socket) : socket_(std::move(socket)) {
    const int flags = fcntl(socket_.get(), F_GETFL);
    fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK);
    const int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }

  void say(Kind kind, const std::string& body) {
    out_ += packed(kind, body);
    flush();
  }

  void flush() {
    while (sent_ < out_.size()) {
      const ssize_t bytes = send(socket_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
      if (bytes < 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) broken_ = true;
        break;
      }
      sent_ += static_cast<std::size_t>(bytes);
    }
    if (sent_ == out_.size() || broken_) {
      out_.clear();
      sent_ = 0;
    }
  }

  /// Takes what is there; false when the line is dead.
  void read() {
    std::array<char, 1 << 16> chunk;
    while (!ended_) {
      const ssize_t bytes = recv(socket_.get(), chunk.data(), chunk.size(), 0);
      if (bytes > 0) {
        in_.append(chunk.data(), static_cast<std::size_t>(bytes));
        if (in_.size() > 2 * longest_message) ended_ = true;
        continue;
      }
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) ended_ = true;
      return;
    }
  }

  /// The next whole message. A line that speaks another language is ended.
  [[nodiscard]] std::optional<Letter> take(std::uint64_t longest) {
    if (in_.size() >= 8 && number_at(in_, 0) != magic) return wrong();
    if (in_.size() < header_bytes) return std::nullopt;
    const std::uint64_t kind = number_at(in_, 8);
    const std::uint64_t length = number_at(in_, 16);
    if (kind == 0 || kind > static_cast<std::uint64_t>(Kind::gone) || length > longest) return wrong();
    if (in_.size() < header_bytes + length) return std::nullopt;
    Letter letter{static_cast<Kind>(kind), in_.substr(header_bytes, length)};
    in_.erase(0, header_bytes + length);
    return letter;
  }

  [[nodiscard]] pollfd wanted() const {
    return {socket_.get(), static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
  }
  [[nodiscard]] bool is_dead() const { return broken_ || ended_; }
  [[nodiscard]] bool has_unsent() const { return !out_.empty() && !broken_; }

 private:
  std::optional<Letter> wrong() {
    in_.clear();
    ended_ = true;
    return std::nullopt;
  }

  Descriptor socket_;
  std::string out_, in_;
  std::size_t sent_ = 0;
  bool broken_ = false;  ///< nothing can be sent
  bool ended_ = false;   ///< nothing more comes
};

struct Addresses {
  addrinfo* list = nullptr;
  Addresses() = default;
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses() {
    if (list != nullptr) freeaddrinfo(list);
  }
};

/// Empty, or why the name is unknown.
std::string look_up(const Launch& launch, Addresses& found) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const int code = getaddrinfo(launch.address.c_str(), std::to_string(launch.port).c_str(), &hints, &found.list);
  return code == 0 ? "" : gai_strerror(code);
}

std::string place_text(const Launch& launch) { return launch.address + ":" + std::to_string(launch.port); }

/// Listens where the others look for the store: at that address, or where the host does not have it itself, at all.
Descriptor listen_at(const Launch& launch) {
  Addresses found;
  const std::string unknown = look_up(launch, found);
  if (!unknown.empty()) throw TransportError("store at " + place_text(launch) + ": " + unknown);
  int failure = 0;
  const auto attempt = [&](const sockaddr* address, socklen_t length, int family) {
    Descriptor socket(::socket(family, SOCK_STREAM, 0));
    const int on = 1;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(socket.get(), address, length) == 0 && listen(socket.get(), 1024) == 0) return socket;
    failure = errno;
    return Descriptor();
  };
  for (const addrinfo* a = found.list; a != nullptr; a = a->ai_next) {
    Descriptor socket = attempt(a->ai_addr, a->ai_addrlen, a->ai_family);
    if (socket.is_open()) return socket;
  }
  if (failure == EADDRNOTAVAIL) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(launch.port);
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    Descriptor socket = attempt(reinterpret_cast<const sockaddr*>(&any), sizeof any, AF_INET);
    if (socket.is_open()) return socket;
  }
  throw TransportError("store at " + place_text(launch) + ": " + std::strerror(failure) +
                       "; another job may be there: ORCHMLLM_PORT takes another port");
}

/// Connects within the time left; rank 0 may come later than this one.
Descriptor connect_to(const Launch& launch, Clock::time_point deadline, Seconds timeout) {
  std::string why = "no answer";
  while (true) {
    Addresses found;
    const std::string unknown = look_up(launch, found);
    if (!unknown.empty()) why = unknown;
    for (const addrinfo* a = found.list; a != nullptr; a = a->ai_next) {
      Descriptor socket(::socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK, 0));
      int code = connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
      if (code == EINPROGRESS) {
        pollfd wanted{socket.get(), POLLOUT, 0};
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        poll(&wanted, 1, static_cast<int>(std::clamp<long>(static_cast<long>(left), 0, 5000)));
        socklen_t length = sizeof code;
        if (wanted.revents == 0) {
          code = ETIMEDOUT;
        } else {
          getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &length);
        }
      }
      if (code == 0) return socket;
      why = std::strerror(code);
    }
    if (Clock::now() >= deadline) {
      throw TransportError("meeting at " + place_text(launch) + ": no store of rank 0 within " +
                           seconds_text(timeout.count()) + " (" + why + ")");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// The store: a thread of rank 0.
class Store {
 public:
  Store(const Launch& launch, Seconds timeout)
      : launch_(launch), timeout_(timeout), listener_(listen_at(launch)), members_(launch.ranks) {
    fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
    thread_ = std::thread([this] { run(); });
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  /// Waits for the others to say goodbye, but not for long.
  ~Store() {
    closing_ = true;
    thread_.join();
  }

 private:
  struct Client {
    explicit Client(Descriptor socket) : line(std::move(socket)), since(Clock::now()) {}
    Line line;
    Clock::time_point since;
    std::optional<std::uint32_t> rank;
    std::string host;
    bool leaves = false;  ///< said goodbye or gave up: its end is no surprise
    bool refused = false;
  };
  struct Gather {
    std::string what;
    std::vector<std::optional<std::string>> texts;
    std::size_t came = 0;
  };
  /// Somebody's question to all.
  struct Question {
    std::uint32_t asker = 0;
    Clock::time_point until;
    std::map<std::uint32_t, std::string> answers;
  };

  void run() {
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout_);
    std::optional<Clock::time_point> closed;
    while (true) {
      std::vector<pollfd> wanted{{listener_.get(), POLLIN, 0}};
      for (const auto& client : clients_) wanted.push_back(client->line.wanted());
      poll(wanted.data(), wanted.size(), 20);
      accept_all();
      for (std::size_t i = 0; i < clients_.size(); ++i) serve(*clients_[i]);
      const auto now = Clock::now();
      if (!begun_ && !failed_ && now > deadline) refuse_all(missing_text());
      answer_questions(now);
      drop_dead(now);
      if (!closing_) continue;
      if (!closed) closed = now;
      const bool idle = std::none_of(clients_.begin(), clients_.end(), [](const auto& client) {
        return client->rank && (!client->leaves || client->line.has_unsent());
      });
      if (idle || now - *closed > std::min(timeout_, Seconds(5))) return;
    }
  }

  void accept_all() {
    while (true) {
      Descriptor socket(accept(listener_.get(), nullptr, nullptr));
      if (!socket.is_open()) return;
      clients_.push_back(std::make_unique<Client>(std::move(socket)));
      if (failed_) refuse(*clients_.back(), *failed_);
    }
  }

  void serve(Client& client) {
    client.line.flush();
    client.line.read();
    while (const auto letter = client.line.take(client.rank ? longest_message : longest_hello)) {
      try {
        handle(client, *letter);
      } catch (const Error&) {
        client.line.say(Kind::refused, std::string(8, '\0'));
        client.refused = true;
      }
    }
  }

  void handle(Client& client, const Letter& letter) {
    if (client.refused) return;
    Fields fields(letter.body);
    if (letter.kind == Kind::hello && !client.rank) return welcome(client, fields);
    if (!client.rank) return;
    switch (letter.kind) {
      case Kind::gather: {
        const std::uint64_t call = fields.number();
        const std::string what = fields.text();
        return gather(*client.rank, call, what, fields.text());
      }
      case Kind::question:
        return ask(*client.rank);
      case Kind::answer:
        for (Question& question : questions_) question.answers.emplace(*client.rank, letter.body);
        return;
      case Kind::farewell: {
        client.leaves = true;
        const std::string why = "gave up: " + letter.body;
        // Its last answer: it does not listen any more, and is not to be blamed for that.
        const std::string& last = farewells_.emplace(*client.rank, why.substr(0, longest_answer)).first->second;
        for (Question& question : questions_) question.answers.emplace(*client.rank, last);
        return tell_gone(*client.rank, why);
      }
      case Kind::bye:
        client.leaves = true;
        return;
      default:
        return;
    }
  }

  void welcome(Client& client, Fields& fields) {
    const std::string version = fields.text();
    const std::string job = fields.text();
    const std::uint64_t rank = fields.number();
    const std::uint64_t ranks = fields.number();
    client.host = fields.text();
    const std::string who = "a process on " + client.host + " that says it is rank " + std::to_string(rank);
    if (version != ORCHMLLM_VERSION) {
      return refuse_all(who + " has version " + version + ", rank 0 has " ORCHMLLM_VERSION);
    }
    // One of another job has lost its way: this one can go on without it.
    if (job != launch_.job) return refuse(client, who + " belongs to job " + job + ", not to " + launch_.job);
    if (ranks != launch_.ranks) {
      return refuse_all(who + " counts " + std::to_string(ranks) + " ranks, rank 0 counts " +
                        std::to_string(launch_.ranks));
    }
    if (rank >= launch_.ranks) return refuse_all(who + ": there are " + std::to_string(ranks));
    if (members_[rank] != nullptr) {
      const std::string twice = "two processes say they are rank " + std::to_string(rank) + ": on " +
                                members_[rank]->host + " and on " + client.host;
      return begun_ ? refuse(client, twice) : refuse_all(twice);
    }
    client.rank = static_cast<std::uint32_t>(rank);
    members_[rank] = &client;
    if (++came_ < launch_.ranks) return;
    begun_ = true;
    for (Client* member : members_) member->line.say(Kind::welcome, "");
  }

  [[nodiscard]] std::string missing_text() const {
    std::set<std::uint32_t> missing;
    for (std::uint32_t rank = 0; rank < launch_.ranks; ++rank) {
      if (members_[rank] == nullptr) missing.insert(rank);
    }
    return ranks_text(missing) + " did not come within " + seconds_text(timeout_.count());
  }

  static void refuse(Client& client, const std::string& why) {
    std::string body;
    write_text(body, why);
    client.line.say(Kind::refused, body);
    client.refused = true;
    client.leaves = true;
  }

  void refuse_all(const std::string& why) {
    failed_ = why;
    for (const auto& client : clients_) {
      if (!client->refused) refuse(*client, why);
    }
  }

  void gather(std::uint32_t rank, std::uint64_t call, const std::string& what, std::string text) {
    Gather& gather = gathers_[call];
    if (gather.texts.empty()) {
      gather.what = what;
      gather.texts.resize(launch_.ranks);
    } else if (gather.what != what) {
      return tell_gone(rank, "is in \"" + what + "\" while others are in \"" + gather.what + "\"");
    }
    if (gather.texts[rank]) return;
    gather.texts[rank] = std::move(text);
    if (++gather.came < launch_.ranks) return;
    std::string body;
    write_number(body, call);
    for (const auto& said : gather.texts) write_text(body, *said);
    for (Client* member : members_) {
      if (member != nullptr) member->line.say(Kind::gathered, body);
    }
    gathers_.erase(call);
  }

  void ask(std::uint32_t asker) {
    const Seconds patience = std::clamp(timeout_ / 4, Seconds(0.2), Seconds(2));
    questions_.push_back({asker, Clock::now() + std::chrono::duration_cast<Clock::duration>(patience), farewells_});
    for (std::uint32_t rank = 0; rank < launch_.ranks; ++rank) {
      if (rank != asker && members_[rank] != nullptr) members_[rank]->line.say(Kind::asked, "");
    }
  }

  void answer_questions(Clock::time_point now) {
    for (auto question = questions_.begin(); question != questions_.end();) {
      question->answers.erase(question->asker);
      if (question->answers.size() + 1 < launch_.ranks && now < question->until) {
        ++question;
        continue;
      }
      std::set<std::uint32_t> silent;
      std::string said;
      for (std::uint32_t rank = 0; rank < launch_.ranks; ++rank) {
        if (rank == question->asker) continue;
        const auto answer = question->answers.find(rank);
        if (answer == question->answers.end()) {
          silent.insert(rank);
        } else if (said.size() < 2000) {
          said += "; rank " + std::to_string(rank) + ": " + answer->second;
        }
      }
      if (members_[question->asker] != nullptr) {
        members_[question->asker]->line.say(
            Kind::report, (silent.empty() ? "; every rank answers" : "; no answer from " + ranks_text(silent)) + said);
      }
      question = questions_.erase(question);
    }
  }

  void tell_gone(std::uint32_t rank, const std::string& why) {
    std::string body;
    write_number(body, rank);
    write_text(body, why);
    for (Client* member : members_) {
      if (member != nullptr) member->line.say(Kind::gone, body);
    }
  }

  void drop_dead(Clock::time_point now) {
    for (std::size_t i = 0; i < clients_.size();) {
      Client& client = *clients_[i];
      const bool mute = !client.rank && now - client.since > timeout_;
      const bool sent_away = client.refused && !client.line.has_unsent() && now - client.since > timeout_;
      if (!client.line.is_dead() && !mute && !sent_away) {
        ++i;
        continue;
      }
      const std::optional<std::uint32_t> rank = client.rank;
      const bool surprise = rank && !client.leaves;
      const std::string host = client.host;
      if (rank) members_[*rank] = nullptr;
      clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
      if (!surprise) continue;
      const std::string why = "is gone: its connection from " + host + " ended";
      if (begun_) {
        tell_gone(*rank, why);
      } else {
        refuse_all("rank " + std::to_string(*rank) + " " + why);
      }
    }
  }

  Launch launch_;
  Seconds timeout_;
  Descriptor listener_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Client*> members_;  ///< by rank
  std::uint32_t came_ = 0;
  bool begun_ = false;
  std::optional<std::string> failed_;
  std::map<std::uint64_t, Gather> gathers_;
  std::vector<Question> questions_;
  std::map<std::uint32_t, std::string> farewells_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace

struct TcpControl::State {
  Launch launch;
  Seconds timeout{};
  std::string host;
  std::unique_ptr<Store> store;
  std::unique_ptr<Line> line;
  std::uint64_t calls = 0;
  std::deque<Letter> gathered;
  std::optional<std::string> report;
  std::optional<std::string> end;  ///< why the job cannot go on
  bool begun = false;

  /// Takes what has come; answers questions with `waiting`.
  void listen(const std::string& waiting, int milliseconds) {
    pollfd wanted = line->wanted();
    poll(&wanted, 1, milliseconds);
    line->flush();
    line->read();
    while (auto letter = line->take(longest_message)) hear(std::move(*letter), waiting);
    if (line->is_dead() && !end) end = "rank 0, which keeps the store, is gone";
  }

  void hear(Letter letter, const std::string& waiting) {
    Fields fields(letter.body);
    switch (letter.kind) {
      case Kind::welcome:
        begun = true;
        return;
      case Kind::refused:
        end = fields.text();
        return;
      case Kind::gathered:
        gathered.push_back(std::move(letter));
        return;
      case Kind::asked:
        line->say(Kind::answer, waiting.substr(0, longest_answer));
        return;
      case Kind::report:
        report = letter.body;
        return;
      case Kind::gone: {
        const std::uint64_t rank = fields.number();
        if (!end) end = "rank " + std::to_string(rank) + " " + fields.text();
        return;
      }
      default:
        return;
    }
  }

  /// Until `ready()`; throws with the reason if the job cannot go on, or when the time is over.
  template <class Ready>
  void wait(const std::string& what, Ready&& ready) {
    const std::string waiting = what + ": waits for all ranks";
    const auto begin = Clock::now();
    while (!ready()) {
      if (end) throw TransportError(what + ": " + *end);
      if (Clock::now() - begin > timeout) {
        throw TransportError(waiting + ", in vain for " + seconds_text(timeout.count()) + ask_around(waiting));
      }
      listen(waiting, 20);
    }
  }

  [[nodiscard]] std::string ask_around(const std::string& waiting) {
    report.reset();
    line->say(Kind::question, "");
    const auto begin = Clock::now();
    while (!report && !line->is_dead() && Clock::now() - begin < Seconds(5)) listen(waiting, 20);
    if (!report) return "; no answer from rank 0, which keeps the store";
    return *report;
  }

  void meet() {
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
    line = std::make_unique<Line>(connect_to(launch, deadline, timeout));
    std::string hello;
    write_text(hello, ORCHMLLM_VERSION);
    write_text(hello, launch.job);
    write_number(hello, launch.rank);
    write_number(hello, launch.ranks);
    write_text(hello, host);
    line->say(Kind::hello, hello);
    const std::string what = "meeting at " + place_text(launch);
    // The store says who is missing when its own time is over, a little later than this rank's.
    const auto end_of_patience = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout + Seconds(2));
    while (!begun) {
      if (end) throw TransportError(what + ": " + *end);
      if (Clock::now() > end_of_patience) {
        throw TransportError(what + ": rank 0 does not say that all ranks came within " +
                             seconds_text(timeout.count()));
      }
      listen(what, 20);
    }
  }
};

TcpControl::TcpControl(const Launch& launch, std::chrono::duration<double> timeout)
    : state_(std::make_unique<State>()) {
  state_->launch = launch;
  state_->timeout = timeout;
  state_->host = own_host();
  if (launch.rank == 0) state_->store = std::make_unique<Store>(launch, timeout);
  state_->meet();
}

TcpControl::~TcpControl() {
  if (state_->line) {
    state_->line->say(Kind::bye, "");
    const auto begin = Clock::now();
    while (state_->line->has_unsent() && Clock::now() - begin < Seconds(1)) state_->listen("", 20);
  }
}

std::uint32_t TcpControl::rank() const { return state_->launch.rank; }
std::uint32_t TcpControl::ranks() const { return state_->launch.ranks; }
std::string TcpControl::host() const { return state_->host; }

std::vector<std::string> TcpControl::all_gather(const std::string& what, const std::string& mine) {
  const std::uint64_t call = state_->calls++;
  if (mine.size() > longest_message / state_->launch.ranks - 4096) {
    throw TransportError(what + ": all ranks together say more than 1 GiB");
  }
  std::string body;
  write_number(body, call);
  write_text(body, what);
  write_text(body, mine);
  state_->line->say(Kind::gather, body);
  state_->wait(what, [&] { return !state_->gathered.empty(); });
  const Letter letter = std::move(state_->gathered.front());
  state_->gathered.pop_front();
  Fields fields(letter.body);
  if (fields.number() != call) throw TransportError(what + ": the store answers another call");
  std::vector<std::string> texts;
  for (std::uint32_t rank = 0; rank < state_->launch.ranks; ++rank) texts.push_back(fields.text());
  return texts;
}

void TcpControl::barrier(const std::string& what) { static_cast<void>(all_gather(what, "")); }

void TcpControl::attend(const std::string& waiting) {
  state_->listen(waiting, 0);
  if (state_->end) throw TransportError(*state_->end);
}

std::string TcpControl::ask_around(const std::string& waiting) { return state_->ask_around(waiting); }

void TcpControl::give_up(const std::string& why) noexcept {
  try {
    state_->line->say(Kind::farewell, why.substr(0, 2000));
    const auto begin = Clock::now();
    while (state_->line->has_unsent() && Clock::now() - begin < Seconds(1)) state_->listen("", 20);
  } catch (const std::exception&) {  // without memory for the words: they are left out
  }
}

void TcpControl::abort(int exit_code) {
  give_up("ended the job with exit code " + std::to_string(exit_code));
  state_->line.reset();
  state_->store.reset();  // what it has to tell the others goes out first
  std::_Exit(exit_code);
}

}  // namespace orch::runtime
