#include <algorithm>
#include <numeric>
#include <set>

#include "orchmllm/base/cost.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/base/sort.hpp"
#include "property.hpp"

using namespace orch;

TEST_CASE("sums and products that pass 64 bits are reported, never wrapped") {
  CHECK(checked_add(~Cost{0} - 1, 1) == ~Cost{0});
  CHECK_THROWS_AS((void)checked_add(~Cost{0}, 1), Overflow);
  CHECK(checked_mul(3'100'000'000, 3'100'000'000) == 9'610'000'000'000'000'000U);
  CHECK_THROWS_AS((void)checked_mul(Cost{1} << 32U, Cost{1} << 32U), Overflow);
  CHECK(ceil_div(~Cost{0}, 2) == Cost{1} << 63U);
}

TEST_CASE("errors carry their exit codes and places") {
  CHECK(InvalidInput::at("f.jsonl", 7, "bad").what() == std::string("f.jsonl:7: bad"));
  CHECK(InvalidInput("").exit_code() == 2);
  CHECK(Infeasible("").exit_code() == 3);
  CHECK(TransportError("").exit_code() == 1);
}

TEST_CASE("descending order equals a stable sort") {
  test::check_property("descending_order is std::stable_sort", [] {
    const auto shift = *rc::gen::element(0U, 10U, 22U, 40U, 60U);
    auto costs = *rc::gen::container<std::vector<Cost>>(rc::gen::inRange<Cost>(0, 50));
    for (Cost& cost : costs) cost <<= shift;
    std::vector<std::uint32_t> expected(costs.size());
    std::iota(expected.begin(), expected.end(), 0U);
    std::stable_sort(expected.begin(), expected.end(), [&](auto a, auto b) { return costs[a] > costs[b]; });
    RC_ASSERT(descending_order(costs) == expected);
  });
}

TEST_CASE("a fingerprint depends on every word, on order and on length") {
  const std::vector<std::uint32_t> words{1, 2, 3};
  const std::vector<std::uint32_t> swapped{2, 1, 3};
  const auto of = [](std::span<const std::uint32_t> w) { return Fingerprint().add_all(w).value(); };
  CHECK(of(words) != of(swapped));
  CHECK(of(words) != of(std::span(words).first(2)));
  CHECK(Fingerprint().add_bytes("abc").value() != Fingerprint().add_bytes(std::string_view("abc\0", 4)).value());
  CHECK(hex(0xabcULL) == "0000000000000abc");
  // The values are part of the plan format: they may never change.
  CHECK(hex(of(words)) == "4801feaa459ee052");
}

TEST_CASE("random streams are reproducible and within bounds") {
  Random a(7);
  Random b(7);
  Random other(7, 1);
  CHECK(a.next() == b.next());
  CHECK(a.next() != other.next());
  for (int i = 0; i < 1000; ++i) {
    CHECK(a.below(3) < 3);
    const double u = a.uniform();
    CHECK(u >= 0);
    CHECK(u < 1);
  }
  const auto order = permutation(1000, Random(1));
  CHECK(std::set(order.begin(), order.end()).size() == 1000);
  CHECK(permutation(1000, Random(1)) == order);
  CHECK(permutation(1000, Random(2)) != order);
}
