#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "orchmllm/orchestrate/prefetch.hpp"

using namespace orch;

TEST_CASE("results come in order, all of them, never more than the depth ahead") {
  std::atomic<std::uint64_t> produced{0};
  std::uint64_t consumed = 0;
  Prefetcher<std::uint64_t> planner(
      [&](std::uint64_t step) {
        ++produced;
        return step * step;
      },
      200, 3);
  while (const auto result = planner.next()) {
    CHECK(*result == consumed * consumed);
    ++consumed;
    CHECK(produced.load() <= consumed + 3 + 1);  // the queue, and the one that is being planned
  }
  CHECK(consumed == 200);
  CHECK(!planner.next().has_value());
}

TEST_CASE("an exception reaches the consumer at its step") {
  Prefetcher<int> planner(
      [](std::uint64_t step) -> int {
        if (step == 2) throw std::runtime_error("step 2");
        return static_cast<int>(step);
      },
      10, 4);
  CHECK(planner.next() == 0);
  CHECK(planner.next() == 1);
  CHECK_THROWS_WITH((void)planner.next(), "step 2");
  CHECK(!planner.next().has_value());
}

TEST_CASE("a planner that is dropped early stops, waiting or planning") {
  std::atomic<int> produced{0};
  {
    Prefetcher<int> waiting([&](std::uint64_t) { return ++produced; }, 1'000'000, 2);
    CHECK(waiting.next() == 1);
  }
  CHECK(produced.load() <= 4);
  {
    Prefetcher<int> planning(
        [&](std::uint64_t) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return 0;
        },
        1'000'000, 2);
  }
  Prefetcher<int> nothing([](std::uint64_t) { return 0; }, 0);
  CHECK(!nothing.next().has_value());
  CHECK_THROWS_AS(Prefetcher<int>([](std::uint64_t) { return 0; }, 1, 0), InvalidInput);
}
