#include "distribute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "../common.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/base/hash.hpp"

namespace orch::sweep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds pause{1};  ///< between looks for messages
constexpr std::chrono::milliseconds most_between_questions{100};
constexpr std::chrono::seconds most_silence{5};    ///< of a worker; being wrong costs little
constexpr std::chrono::seconds most_patience{60};  ///< with rank 0, which writes files

[[nodiscard]] std::string hash_of(const Json& identity) {
  return hex(Fingerprint().add_bytes(identity.dump()).value());
}

[[nodiscard]] std::size_t point_of(const std::string& line) { return Json::parse(line).at("point").get<std::size_t>(); }

}  // namespace

std::optional<std::size_t> Points::take() {
  if (waiting_.empty()) return {};
  return waiting_.extract(waiting_.begin()).value();
}

void Points::give_back(std::size_t point) {
  if (unfinished_.contains(point)) waiting_.insert(point);
}

bool Points::finish(std::size_t point) {
  waiting_.erase(point);
  return unfinished_.erase(point) > 0;
}

Workers::Workers(Processes& processes) : processes_(processes), workers_(static_cast<std::size_t>(processes.size())) {}

void Workers::keep_waiting() {
  while (const auto message = processes_.receive()) answer(message->from, {{"points", Json::array()}});
}

void Workers::serve(const Json& identity, Points& points, const Record& record) {
  const std::string hash = hash_of(identity);
  while (const auto message = processes_.receive()) {
    Worker& worker = workers_[static_cast<std::size_t>(message->from)];
    const Json question = Json::parse(message->text);
    if (question.contains("error")) {
      throw InvalidInput(fmt::format("rank {}: {}", message->from, question["error"].get<std::string>()));
    }
    if (question.value("identity", hash) != hash) {
      throw InvalidInput(
          fmt::format("rank {} has another build of orch, sweep file or input file than rank 0", message->from));
    }
    take_results(worker, question, points, record);
    Json given = Json::array();
    while (given.size() < question["idle"]) {
      const auto point = points.take();
      if (!point) break;
      worker.points.insert(*point);
      given.push_back(*point);
    }
    answer(message->from, {{"points", given}});
  }
  find_silent();
  for (Worker& worker : workers_) {
    if (!worker.silent) continue;
    for (const std::size_t point : worker.points) points.give_back(point);
    worker.points.clear();
  }
}

void Workers::take_results(Worker& worker, const Json& question, Points& points, const Record& record) {
  for (const Json& line : question["lines"]) {
    const Finished finished{point_of(line), line};
    worker.points.erase(finished.point);
    if (points.finish(finished.point)) record(finished);
  }
}

void Workers::stop() {
  const auto over = [](const Worker& worker) { return worker.stopped || worker.silent; };
  while (!std::all_of(workers_.begin() + 1, workers_.end(), over)) {
    while (const auto message = processes_.receive()) {
      answer(message->from, {{"stop", true}});
      workers_[static_cast<std::size_t>(message->from)].stopped = true;
    }
    find_silent();
    std::this_thread::sleep_for(pause);
  }
}

bool Workers::all_stopped() const {
  return std::all_of(workers_.begin() + 1, workers_.end(), [](const Worker& worker) { return worker.stopped; });
}

void Workers::answer(int rank, const Json& text) {
  Worker& worker = workers_[static_cast<std::size_t>(rank)];
  worker.heard = Clock::now();
  worker.silent = false;
  processes_.send(rank, text.dump());
}

void Workers::find_silent() {
  for (std::size_t rank = 1; rank < workers_.size(); ++rank) {
    Worker& worker = workers_[rank];
    if (worker.silent || worker.stopped || Clock::now() - worker.heard < most_silence) continue;
    worker.silent = true;
    apps::tell(fmt::format("warning: rank {} is silent and taken for dead; its points are handed out again", rank));
  }
}

void end_all(Processes& processes, const std::exception& error) {
  apps::tell(std::string("error: ") + error.what());
  const auto* known = dynamic_cast<const Error*>(&error);
  processes.end_all(known != nullptr ? known->exit_code() : 1);
}

void run_points(Sweep& sweep, Points& points, std::size_t jobs, Workers* workers, const Record& record) {
  Pool pool(jobs, [&](std::size_t point) { return sweep.run(point); });
  const std::chrono::milliseconds patience = workers != nullptr ? pause : most_silence;
  try {
    while (!points.all_finished()) {
      while (pool.idle() > 0) {
        const auto point = points.take();
        if (!point) break;
        pool.start(*point);
      }
      for (const Finished& finished : pool.finished(patience)) {
        if (points.finish(finished.point)) record(finished);
      }
      if (workers != nullptr) workers->serve(sweep.identity(), points, record);
    }
  } catch (const std::exception& error) {
    if (workers != nullptr) end_all(workers->processes(), error);  // here, for the pool waits for what runs
    throw;
  }
}

void work(Processes& processes, Loading loading, std::size_t jobs) {
  std::unique_ptr<Sweep> sweep;
  std::optional<Pool> pool;
  Json question{{"idle", 0}, {"lines", Json::array()}};
  Clock::time_point asked;
  bool waiting = false;
  for (;;) {
    if (loading.valid() && loading.wait_for(pause) == std::future_status::ready) {
      try {
        sweep = loading.get();
        question["identity"] = hash_of(sweep->identity());
        pool.emplace(jobs, [&](std::size_t point) { return sweep->run(point); });
      } catch (const std::exception& error) {
        question["error"] = error.what();
      }
    }
    if (pool) {
      for (Finished& finished : pool->finished(pause)) question["lines"].push_back(std::move(finished.line));
    } else {
      std::this_thread::sleep_for(pause);
    }
    if (const auto message = processes.receive()) {
      waiting = false;
      const Json answer = Json::parse(message->text);
      if (answer.contains("stop")) return;
      for (const Json& point : answer["points"]) pool->start(point);
    }
    if (!waiting && (!question["lines"].empty() || Clock::now() - asked > most_between_questions)) {
      question["idle"] = pool ? pool->idle() : 0;
      processes.send(0, question.dump());
      question["lines"] = Json::array();
      waiting = true;
      asked = Clock::now();
    }
    if (waiting && Clock::now() - asked > most_patience) {
      apps::tell("error: rank 0 is silent and taken for dead");
      std::_Exit(1);  // MPI would wait for rank 0
    }
  }
}

}  // namespace orch::sweep
