#include "instances.hpp"
#include "models.hpp"
#include "orchmllm/cost/shape.hpp"
#include "orchmllm/model/flops.hpp"
#include "orchmllm/model/phase_lengths.hpp"
#include "property.hpp"

using namespace orch;

namespace {

Transformer qwen(std::uint64_t layers, std::uint64_t hidden, std::uint64_t heads, std::uint64_t kv, std::uint64_t ffn) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv,
          .head_dim = 128,
          .ffn = ffn,
          .gated_mlp = true,
          .qkv_bias = true,
          .causal = true,
          .vocab = 152064};
}

const Transformer whisper{.layers = 32,
                          .hidden = 1280,
                          .heads = 20,
                          .kv_heads = 20,
                          .head_dim = 64,
                          .ffn = 5120,
                          .qkv_bias = true,
                          .linear_bias = true};

double billions(std::uint64_t parameters) { return static_cast<double>(parameters) / 1e9; }

}  // namespace

TEST_CASE("parameter counts of published models") {
  CHECK(billions(parameters(qwen(28, 3584, 28, 4, 18944))) == doctest::Approx(7.616).epsilon(0.0005));  // Qwen2-7B
  CHECK(billions(parameters(qwen(48, 5120, 40, 8, 13824))) == doctest::Approx(14.77).epsilon(0.0005));  // Qwen2.5-14B
  CHECK(billions(parameters(qwen(80, 8192, 64, 8, 29568))) == doctest::Approx(72.7).epsilon(0.0005));   // Qwen2-72B
  const Transformer intern_vit{
      .layers = 45, .hidden = 3200, .heads = 25, .kv_heads = 25, .head_dim = 128, .ffn = 12800};
  CHECK(billions(parameters(intern_vit)) == doctest::Approx(5.54).epsilon(0.002));  // InternViT-6B V1.5
  CHECK(billions(parameters(whisper)) == doctest::Approx(0.635).epsilon(0.015));    // positions, convolutions apart
}

TEST_CASE("forward operations of well-known units") {
  const Transformer intern_vit{
      .layers = 45, .hidden = 3200, .heads = 25, .kv_heads = 25, .head_dim = 128, .ffn = 12800};
  const auto forward = [](const Transformer& t, std::uint64_t length) {
    return static_cast<double>(length) * static_cast<double>(linear_flops_per_token(t)) +
           attention_pairs(length, 0) * static_cast<double>(attention_flops_per_pair(t));
  };
  CHECK(forward(intern_vit, 1025) / 1e12 == doctest::Approx(12.0).epsilon(0.01));  // a 448-pixel tile
  CHECK(forward(whisper, 1500) / 1e12 == doctest::Approx(2.3).epsilon(0.03));      // 30 seconds
  const Transformer llm = qwen(80, 8192, 64, 8, 29568);
  CHECK(static_cast<double>(linear_flops_per_token(llm)) / 1e12 == doctest::Approx(0.143).epsilon(0.01));
}

TEST_CASE("InternVL tiles") {
  const TiledImages rule;
  CHECK(rule.tiles({448, 448}) == 1);
  CHECK(rule.tiles({640, 480}) == 12);   // 4 : 3 exactly
  CHECK(rule.tiles({896, 448}) == 2);    // 2 : 1; 4 x 2 and larger need more pixels
  CHECK(rule.tiles({4480, 2240}) == 8);  // 4 x 2 of the same ratio
  CHECK(rule.tiles({100, 10000}) == 12);
  const UnitLength one = rule.image({448, 448});
  CHECK(one.encoder == 1025);
  CHECK(one.llm == 256);
  const UnitLength many = rule.image({640, 480});  // 12 tiles and the thumbnail
  CHECK(many.encoder == 13 * 1025);
  CHECK(many.llm == 13 * 256);
  CHECK(rule.video({.frames = 8, .microseconds = 0, .size = {}}).llm == 8 * 256);
  CHECK(rule.video({.frames = 0, .microseconds = 5'500'000, .size = {}}).llm == 6 * 256);
  CHECK(rule.video({.frames = 1000, .microseconds = 0, .size = {}}).llm == 64 * 256);
}

TEST_CASE("Qwen2-VL native resolution") {
  const NativeImages rule;
  const UnitLength square = rule.image({1024, 1024});  // rounds to 1036 x 1036
  CHECK(square.encoder == 5476);
  CHECK(square.llm == 1369 + 2);
  const UnitLength tiny = rule.image({10, 10});
  CHECK(tiny.encoder == 16);  // grown to min_pixels: 56 x 56
  const UnitLength huge = rule.image({20000, 10000});
  CHECK(huge.encoder <= 65536);
  CHECK(huge.encoder > 60000);
  CHECK_THROWS_AS((void)rule.image({30000, 100}), InvalidInput);
  // 64 frames of 448 x 448: 32 grids of 32 x 32 patches; capped to 16,384 LLM tokens in total.
  CHECK(rule.video({.frames = 64, .microseconds = 0, .size = {448, 448}}).encoder == 32 * 1024);
  test::check_property("pixel bounds hold", [] {
    const NativeImages native;
    const auto width = *rc::gen::inRange<std::uint32_t>(1, 9000);
    const auto height = *rc::gen::inRange<std::uint32_t>(width / 190 + 1, std::min(width * 190, 9000U) + 1);
    const UnitLength length = native.image({width, height});
    RC_ASSERT(length.encoder % 4 == 0U);
    RC_ASSERT(length.encoder * 196ULL <= native.max_pixels);
    RC_ASSERT(length.encoder * 196ULL >= native.min_pixels);
    RC_ASSERT(length.llm == length.encoder / 4 + 2);
  });
}

TEST_CASE("Whisper frames") {
  const AudioFrames rule;
  CHECK(rule.audio({30'000'000}).encoder == 1500);
  CHECK(rule.audio({30'000'000}).llm == 750);
  CHECK(rule.audio({1'000}).encoder == 1);
  CHECK(rule.audio({1'000}).llm == 1);
  AudioFrames padded = rule;
  padded.pad_to_window = true;
  CHECK(padded.audio({1'000'000}).encoder == 1500);
  CHECK(padded.audio({31'000'000}).encoder == 3000);
  CHECK_THROWS_AS((void)rule.audio({~std::uint64_t{0}}), InvalidInput);
}

TEST_CASE("counts replace rules, ratios fill what is not known") {
  const Mllm model = test::plain_model();
  Sample sample = test::counted(10, {{1000, 250}, {402, std::nullopt}}, {{7, std::nullopt}});
  sample.images = {{640, 480}};  // replaced by the counts
  const PhaseLengths lengths = test::lengths_of(model, {sample});
  CHECK(lengths.encoders[0].tokens(0) == 1402);
  CHECK(lengths.encoders[0].llm_length[0] == 250 + 101);
  CHECK(lengths.encoders[1].llm_length[0] == 4);
  CHECK(lengths.llm_length[0] == 10 + 351 + 4);
}

TEST_CASE("what a model cannot encode is refused and leaves nothing behind") {
  Mllm text_only = test::plain_model();
  text_only.encoders.clear();
  PhaseLengths lengths;
  Sample sample = test::counted(10);
  sample.audio = {{1'000'000}};
  CHECK_THROWS_AS(append(lengths, text_only, sample), InvalidInput);
  CHECK_THROWS_AS(append(lengths, text_only, test::counted(1, {{4, 1}})), InvalidInput);
  CHECK(lengths.samples() == 0);
  append(lengths, text_only, test::counted(10));
  CHECK(lengths.llm_length[0] == 10);
}

TEST_CASE("cost models keep the ratio of linear to attention work") {
  Mllm model = test::plain_model();
  model.llm = qwen(28, 3584, 28, 4, 18944);
  const PackedCost cost = llm_cost(model);
  const double exact =
      static_cast<double>(linear_flops_per_token(model.llm)) / static_cast<double>(attention_flops_per_pair(model.llm));
  CHECK(static_cast<double>(cost.alpha) / static_cast<double>(cost.beta) == doctest::Approx(exact).epsilon(1.0 / 8192));
  const ConvPackedCost audio = encoder_cost(model.encoders[1]);
  CHECK(audio.conv_alpha > 0);
  CHECK(audio.packed.attention_span == 1500);
  CHECK(encoder_cost(model.encoders[0]).conv_alpha == 0);
}
