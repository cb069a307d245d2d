#include "orchmllm/cost/conv_packed.hpp"
#include "orchmllm/cost/packed.hpp"
#include "orchmllm/cost/padded.hpp"
#include "property.hpp"

using namespace orch;

TEST_CASE("packed cost") {
  CHECK(PackedCost{.alpha = 1}(7) == 7);
  CHECK(PackedCost{.gamma = 5, .alpha = 2, .beta = 3}(4) == 5 + 8 + 48);
  CHECK(PackedCost{.alpha = 0, .beta = 1}(0) == 0);
  CHECK_THROWS_AS((void)(PackedCost{.alpha = 0, .beta = 1}(std::uint64_t{1} << 33U)), Overflow);
}

TEST_CASE("attention inside blocks costs the square of every block") {
  const PackedCost blocks{.alpha = 0, .beta = 2, .attention_span = 1000};
  CHECK(blocks(999) == 2 * 999 * 999);
  CHECK(blocks(2500) == 2 * (1'000'000 + 1'000'000 + 250'000));
  test::check_property("a span that the unit fits into changes nothing", [] {
    const auto length = *rc::gen::inRange<std::uint64_t>(0, 5000);
    RC_ASSERT((PackedCost{.alpha = 3, .beta = 2, .attention_span = 5000}(length)) ==
              (PackedCost{.alpha = 3, .beta = 2}(length)));
  });
}

TEST_CASE("padded cost") {
  CHECK(PaddedCost{}(3, 9) == 27);
  CHECK(PaddedCost{.alpha = 2, .beta = 1}(2, 3) == 2 * (6 + 9));
  CHECK(PaddedCost{}(0, 9) == 0);
}

TEST_CASE("convolution + packed cost of a batch and of its parts") {
  const ConvPackedCost cost{.conv_alpha = 10, .packed = {.alpha = 1}};
  const std::vector<std::uint32_t> first{3, 5};
  const std::vector<std::uint32_t> second{4};
  const std::vector<std::uint32_t> none;
  CHECK(cost(cost.batch(first)) == 10 * 2 * 5 + 8);
  CHECK(cost(ConvPackedCost::merge(cost.batch(first), cost.batch(second))) == 10 * 3 * 5 + 12);
  CHECK(cost(cost.batch(none)) == 0);
}
