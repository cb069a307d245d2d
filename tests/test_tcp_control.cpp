// The TCP store with real processes on 127.0.0.1: ranks meet, speak, and are told who is missing, wrong, dead or
// silent.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/runtime/tcp_control.hpp"

using namespace orch;
using namespace orch::runtime;
using namespace std::chrono_literals;

namespace {

using Seconds = std::chrono::duration<double>;

std::uint16_t free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  socklen_t length = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  close(listener);
  return ntohs(address.sin_port);
}

Launch launch(std::uint32_t rank, std::uint32_t ranks, std::uint16_t port) {
  return {.rank = rank, .ranks = ranks, .local_rank = 0, .address = "127.0.0.1", .port = port, .job = "job"};
}

/// A process that says something; an error is what it says then.
struct Process {
  explicit Process(const std::function<std::string()>& body) {
    std::array<int, 2> ends{};
    REQUIRE(pipe(ends.data()) == 0);
    id = fork();
    REQUIRE(id >= 0);
    if (id == 0) {
      std::string text;
      try {
        text = body();
      } catch (const std::exception& error) {
        text = error.what();
      }
      const bool said = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
      _exit(said ? 0 : 1);
    }
    close(ends[1]);
    output = ends[0];
  }

  /// Waits for its end, not for long.
  std::string said() {
    std::string text;
    std::array<char, 4096> chunk;
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd wanted{output, POLLIN, 0};
      if (poll(&wanted, 1, 100) <= 0) continue;
      const ssize_t bytes = read(output, chunk.data(), chunk.size());
      if (bytes <= 0) break;
      text.append(chunk.data(), static_cast<std::size_t>(bytes));
    }
    kill(id, SIGKILL);
    close(output);
    waitpid(id, nullptr, 0);
    return text;
  }

  pid_t id = 0;
  int output = 0;
};

using Body = std::function<std::string(TcpControl&)>;

/// Ranks of one job, each its own process; what each of them said.
std::vector<std::string> on_processes(std::uint32_t ranks, const Body& body, Seconds timeout = 20s) {
  const std::uint16_t port = free_port();
  std::vector<Process> processes;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    processes.emplace_back([&] {
      TcpControl control(launch(rank, ranks, port), timeout);
      return body(control);
    });
  }
  std::vector<std::string> said;
  for (Process& process : processes) said.push_back(process.said());
  return said;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// What launches that need not fit each other say, and how long that takes at most.
std::vector<std::string> meetings(const std::vector<Launch>& launches, Seconds timeout) {
  std::vector<Process> processes;
  for (const Launch& each : launches) {
    processes.emplace_back([&] {
      TcpControl control(each, timeout);
      control.barrier("here");
      return std::string("met");
    });
  }
  std::vector<std::string> said;
  for (Process& process : processes) said.push_back(process.said());
  return said;
}

Environment variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

TEST_CASE("ranks gather texts of any length, in order, again and again") {
  const auto said = on_processes(4, [](TcpControl& control) {
    const std::size_t me = control.rank();
    for (std::size_t round = 0; round < 20; ++round) {
      const auto texts =
          control.all_gather("round", std::string(round * round * 1000 * me, static_cast<char>('a' + me)));
      for (std::size_t rank = 0; rank < 4; ++rank) {
        if (texts.at(rank) != std::string(round * round * 1000 * rank, static_cast<char>('a' + rank))) return "wrong";
      }
      control.barrier("end of round");
      control.attend("nothing");
    }
    return "right";
  });
  CHECK(said == std::vector<std::string>(4, "right"));
}

TEST_CASE("a job of one rank") {
  CHECK(on_processes(1, [](TcpControl& control) { return control.all_gather("alone", "x").at(0); }) ==
        std::vector<std::string>{"x"});
}

TEST_CASE("a rank that never comes is named on all ranks within the time-out") {
  const std::uint16_t port = free_port();
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& text : meetings({launch(0, 4, port), launch(1, 4, port), launch(2, 4, port)}, 1s)) {
    CAPTURE(text);
    CHECK(has(text, "meeting at 127.0.0.1:" + std::to_string(port)));
    CHECK(has(text, "rank 3 did not come within 1.0 s"));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
}

TEST_CASE("without rank 0 there is no store") {
  const std::uint16_t port = free_port();
  for (const std::string& text : meetings({launch(1, 2, port)}, 1s)) {
    CAPTURE(text);
    CHECK(has(text, "no store of rank 0 within 1.0 s"));
  }
}

TEST_CASE("a rank that is there twice, or counts other ranks, is named on all ranks at once") {
  std::uint16_t port = free_port();
  std::vector<std::string> said = meetings({launch(0, 3, port), launch(1, 3, port), launch(1, 3, port)}, 15s);
  for (const std::string& text : said) {
    CAPTURE(text);
    CHECK(has(text, "two processes say they are rank 1: on "));
  }
  port = free_port();
  said = meetings({launch(0, 2, port), launch(1, 3, port)}, 15s);
  for (const std::string& text : said) {
    CAPTURE(text);
    CHECK(has(text, "that says it is rank 1 counts 3 ranks, rank 0 counts 2"));
  }
}

TEST_CASE("who belongs to another job, or speaks another language, is sent away, and the job goes on") {
  const std::uint16_t port = free_port();
  Launch lost = launch(1, 2, port);
  lost.job = "another";
  Process first([&] {
    TcpControl control(launch(0, 2, port), 20s);
    return control.all_gather("names", "zero").at(1);
  });
  Process stranger([&] {
    try {
      TcpControl control(lost, 20s);
      return std::string("met");
    } catch (const TransportError& error) {
      return std::string(error.what());
    }
  });
  const std::string refusal = stranger.said();
  CHECK(has(refusal, "belongs to job another, not to job"));
  Process browser([&] {
    const int talk = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(talk, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return std::string("?");
    const std::string request = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    if (write(talk, request.data(), request.size()) < 0) return std::string("?");
    char byte = 0;
    return std::string(read(talk, &byte, 1) <= 0 ? "sent away" : "answered");
  });
  CHECK(browser.said() == "sent away");
  Process second([&] {
    TcpControl control(launch(1, 2, port), 20s);
    return control.all_gather("names", "one").at(0);
  });
  CHECK(first.said() == "one");
  CHECK(second.said() == "zero");
}

TEST_CASE("a port that is taken is named") {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(listener, 1) == 0);
  socklen_t length = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  const auto said = meetings({launch(0, 1, ntohs(address.sin_port))}, 1s);
  CAPTURE(said[0]);
  CHECK(has(said[0], "ORCHMLLM_PORT takes another port"));
  close(listener);
}

TEST_CASE("a rank that dies is named at once to whoever waits") {
  const auto begin = std::chrono::steady_clock::now();
  const auto said = on_processes(3, [](TcpControl& control) {
    control.barrier("begin");
    if (control.rank() == 2) std::raise(SIGKILL);
    control.barrier("step 0, planning");
    return std::string("survived");
  });
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    CAPTURE(said[rank]);
    CHECK(has(said[rank], "step 0, planning: rank 2 is gone: its connection from "));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 15s);
}

TEST_CASE("the death of rank 0 is noticed too") {
  const auto said = on_processes(2, [](TcpControl& control) {
    control.barrier("begin");
    if (control.rank() == 0) std::raise(SIGKILL);
    control.barrier("step 0, planning");
    return std::string("survived");
  });
  CAPTURE(said[1]);
  CHECK(has(said[1], "rank 0, which keeps the store, is gone"));
}

TEST_CASE("a rank that stalls does not answer; the others say what they wait for") {
  const auto said = on_processes(
      3,
      [](TcpControl& control) {
        control.barrier("begin");
        if (control.rank() == 1) std::this_thread::sleep_for(6s);
        control.barrier("step 4, planning");
        return std::string("survived");
      },
      1s);
  for (const std::uint32_t rank : {0U, 2U}) {
    CAPTURE(said[rank]);
    CHECK(has(said[rank], "step 4, planning"));
    CHECK((has(said[rank], "no answer from rank 1") || has(said[rank], "is gone")));
  }
  CHECK((has(said[0], "no answer from rank 1") || has(said[2], "no answer from rank 1")));
}

TEST_CASE("a rank that gives up tells the others why") {
  const auto said = on_processes(3, [](TcpControl& control) {
    control.barrier("begin");
    if (control.rank() == 1) {
      control.give_up("its GPU is hot");
      return std::string("left");
    }
    for (int i = 0; i < 400; ++i) {
      control.attend("step 2, exchange: waits for 8 bytes from rank 1");
      std::this_thread::sleep_for(10ms);
    }
    return std::string("heard nothing");
  });
  CHECK(said[0] == "rank 1 gave up: its GPU is hot");
  CHECK(said[1] == "left");
  CHECK(said[2] == "rank 1 gave up: its GPU is hot");
}

TEST_CASE("who asks hears what the others wait for") {
  const auto said = on_processes(3, [](TcpControl& control) {
    control.barrier("begin");
    std::string heard;
    if (control.rank() == 0) {
      std::this_thread::sleep_for(200ms);  // until the others have left the barrier
      heard = control.ask_around("asking");
    } else {
      for (int i = 0; i < 100; ++i) {
        control.attend("rank " + std::to_string(control.rank()) + " is busy");
        std::this_thread::sleep_for(10ms);
      }
    }
    control.barrier("end");
    return heard;
  });
  CHECK(said[0] == "; every rank answers; rank 1: rank 1 is busy; rank 2: rank 2 is busy");
}

TEST_CASE("who has given up is not said to be silent") {
  const auto said = on_processes(3, [](TcpControl& control) {
    control.barrier("begin");
    if (control.rank() == 0) {
      std::this_thread::sleep_for(200ms);  // until rank 1 has given up
      return control.ask_around("asking");
    }
    if (control.rank() == 1) control.give_up("its GPU is hot");
    std::this_thread::sleep_for(3s);
    return std::string();
  });
  CHECK(said[0] == "; no answer from rank 2; rank 1: gave up: its GPU is hot");
}

TEST_CASE("ranks that are in different calls are told so") {
  const auto said = on_processes(2, [](TcpControl& control) {
    control.barrier(control.rank() == 0 ? "step 1" : "step 2");
    return std::string("agreed");
  });
  for (const std::string& text : said) {
    CAPTURE(text);
    CHECK((has(text, "is in \"step 2\" while others are in \"step 1\"") ||
           has(text, "is in \"step 1\" while others are in \"step 2\"") || has(text, "is gone")));
  }
}

TEST_CASE("launchers' variables") {
  CHECK_FALSE(find_launch(variables({})));
  const auto torch = find_launch(variables({{"RANK", "3"},
                                            {"WORLD_SIZE", "8"},
                                            {"LOCAL_RANK", "1"},
                                            {"MASTER_ADDR", "node1"},
                                            {"MASTER_PORT", "29500"},
                                            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                            {"TORCHELASTIC_RUN_ID", "r1"}}));
  REQUIRE(torch);
  CHECK(torch->rank == 3);
  CHECK(torch->ranks == 8);
  CHECK(torch->local_rank == 1);
  CHECK(torch->address == "node1");
  CHECK(torch->port == 29501);  // the agent has the other one
  CHECK(torch->job == "r1");
  const auto slurm = find_launch(variables({{"SLURM_PROCID", "5"},
                                            {"SLURM_NTASKS", "16"},
                                            {"SLURM_LOCALID", "5"},
                                            {"SLURM_STEP_NODELIST", "node[003-007,012],login1"},
                                            {"SLURM_JOB_ID", "77"},
                                            {"SLURM_STEP_ID", "2"}}));
  REQUIRE(slurm);
  CHECK(slurm->rank == 5);
  CHECK(slurm->ranks == 16);
  CHECK(slurm->address == "node003");
  CHECK(slurm->port == 20000 + 77 * 31 + 2);
  CHECK(slurm->job == "77.2");
  CHECK(first_host("a1,b2") == "a1");
  CHECK(first_host("n[1-4]-ib,m2") == "n1-ib");
  CHECK(first_host("n[08,10]") == "n08");
  CHECK(find_local_rank(variables({{"OMPI_COMM_WORLD_LOCAL_RANK", "6"}, {"LOCAL_RANK", "1"}})) == 6);
  CHECK(launched_by_mpi(variables({{"OMPI_COMM_WORLD_SIZE", "2"}})));
  CHECK_FALSE(launched_by_mpi(variables({{"RANK", "2"}})));
  const Environment agent_of_mpi = variables({{"TORCHELASTIC_RUN_ID", "r1"},
                                              {"RANK", "5"},
                                              {"LOCAL_RANK", "1"},
                                              {"OMPI_COMM_WORLD_SIZE", "2"},
                                              {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                              {"PMIX_RANK", "0"}});
  CHECK_FALSE(launched_by_mpi(agent_of_mpi));
  CHECK(find_local_rank(agent_of_mpi) == 1);
  CHECK_FALSE(find_launch(variables({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}})));
  CHECK_THROWS_WITH_AS(static_cast<void>(find_launch(variables({{"RANK", "x"}, {"WORLD_SIZE", "2"}}))),
                       "environment: RANK=x: expected a number up to 1073741824", InvalidInput);
  CHECK_THROWS_WITH_AS(static_cast<void>(find_launch(variables({{"RANK", "1"}}))),
                       "environment: WORLD_SIZE is not set, other variables of a launcher are", InvalidInput);
  CHECK_THROWS_AS(static_cast<void>(find_launch(
                      variables({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}))),
                  InvalidInput);
}
