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

namespace {

using Numbers = std::vector<std::uint32_t>;

Segment text(std::uint32_t tokens) { return {tokens, {}}; }
Segment unit(std::string kind) { return {0, std::move(kind)}; }

/// LLM tokens that a unit with `output` tokens behind encoder `e` brings, its derived units included.
std::uint64_t llm_tokens(const Mllm& model, std::size_t e, std::uint32_t output) {
  std::uint64_t sum = feeds_llm(model.encoders[e]) ? output : 0;
  for (std::size_t later = e + 1; later < model.encoders.size(); ++later) {
    if (!feeds(model.encoders[e], model.encoders[later].phase)) continue;
    const std::uint32_t pool = std::get<EncoderTokens>(model.encoders[later].rule).pool;
    sum += llm_tokens(model, later, (output + pool - 1) / pool);
  }
  return sum;
}

/// Text runs as [begin, end), from the sample's order and `llm_tokens` alone.
std::vector<std::pair<std::uint64_t, std::uint64_t>> text_runs(const Mllm& model, const PhaseLengths& lengths,
                                                               const Sample& sample) {
  struct Run {
    std::string kind;
    std::size_t encoder, next, end;
  };
  std::vector<Run> runs;
  for (std::size_t e = 0; e < model.encoders.size(); ++e) {
    const Encoder& encoder = model.encoders[e];
    if (!has_raw_input(encoder)) continue;
    const std::size_t units = lengths.encoders[e].unit_length.size();
    const bool counted = std::any_of(sample.tokens.begin(), sample.tokens.end(),
                                     [&](const CountedUnits& c) { return c.phase == encoder.phase; });
    if (counted) {
      runs.push_back({encoder.phase, e, 0, units});
    } else if (std::holds_alternative<AudioFrames>(encoder.rule)) {
      runs.push_back({"audio", e, 0, units});
    } else {
      runs.push_back({"image", e, 0, sample.images.size()});
      runs.push_back({"video", e, sample.images.size(), units});
    }
  }
  std::uint64_t place = 0;
  const auto pass = [&](Run& run) {
    place += llm_tokens(model, run.encoder, lengths.encoders[run.encoder].unit_llm_length[run.next++]);
  };
  std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
  const auto read = [&](std::uint32_t tokens) {
    found.emplace_back(place, place + tokens);
    place += tokens;
  };
  for (const Segment& segment : sample.order) {
    if (segment.kind.empty()) read(segment.text);
    for (Run& run : runs) {
      if (run.kind == segment.kind) pass(run);
    }
  }
  if (!sample.order.empty()) return found;
  for (Run& run : runs) {
    while (run.next < run.end) pass(run);
  }
  read(sample.text);
  return found;
}

}  // namespace

TEST_CASE("units come first without an order, and in its places with one") {
  const Mllm model = test::plain_model();
  Sample sample = test::counted(42, {{40, 10}, {80, 20}}, {{10, 5}});
  const PhaseLengths plain = test::lengths_of(model, {sample});
  CHECK(plain.encoders[0].unit_llm_length == Numbers{10, 20});
  CHECK(plain.encoders[0].unit_position == Numbers{0, 10});
  CHECK(plain.encoders[1].unit_position == Numbers{30});
  CHECK(plain.llm_length == Numbers{77});

  // 12 text, vision 10, audio 5, 25 text, vision 20, 5 text
  sample.order = {text(12), unit("vision"), unit("audio"), text(20), text(5), unit("vision"), text(5)};
  const PhaseLengths ordered = test::lengths_of(model, {sample, sample});
  CHECK(ordered.encoders[0].unit_position == Numbers{12, 52, 12, 52});
  CHECK(ordered.encoders[1].unit_position == Numbers{22, 22});
  CHECK(ordered.llm_length == Numbers{77, 77});
  CHECK(ordered.encoders[0].llm_length == Numbers{30, 30});
}

TEST_CASE("images and videos share an encoder and are named apart") {
  const Mllm model = test::plain_model();  // tiles of 10,000 patches: 2,500 LLM tokens
  Sample sample = test::counted(30);
  sample.images = {{10, 10}, {10, 10}};
  sample.video = {{.frames = 2, .microseconds = 0, .size = {}}};
  sample.audio = {{1'000'000}};  // 25 LLM tokens
  sample.order = {unit("video"), text(30), unit("audio"), unit("image"), unit("image")};
  const PhaseLengths lengths = test::lengths_of(model, {sample});
  CHECK(lengths.encoders[0].unit_position == Numbers{5055, 7555, 0});
  CHECK(lengths.encoders[1].unit_position == Numbers{5030});

  Mllm twice = model;  // a second encoder sees the same images
  twice.encoders.push_back(model.encoders[0]);
  twice.encoders[2].phase = "detail";
  sample.video.clear();
  sample.order = {unit("image"), text(30), unit("image"), unit("audio")};
  const PhaseLengths both = test::lengths_of(twice, {sample});
  CHECK(both.encoders[0].unit_position == Numbers{0, 5030});
  CHECK(both.encoders[2].unit_position == Numbers{2500, 7530});
  sample.order.clear();  // phase by phase
  const PhaseLengths phases = test::lengths_of(twice, {sample});
  CHECK(phases.encoders[0].unit_position == Numbers{0, 2500});
  CHECK(phases.encoders[2].unit_position == Numbers{5025, 7525});
}

TEST_CASE("an encoder takes other encoders' outputs, which stand where their origin is named") {
  const Mllm model = test::fusion_model();
  validate(model);
  Sample sample = test::counted(100, {{400, 100}, {44, 11}}, {{60, 30}});
  const PhaseLengths plain = test::lengths_of(model, {sample});
  CHECK(plain.encoders[2].unit_length == Numbers{100, 11, 30});
  CHECK(plain.encoders[2].unit_llm_length == Numbers{10, 2, 3});
  CHECK(plain.encoders[0].unit_llm_length == Numbers{100, 11});
  CHECK(plain.encoders[0].unit_position == Numbers{0, 0});  // vision does not feed the LLM
  CHECK(plain.encoders[1].unit_position == Numbers{12});
  CHECK(plain.encoders[2].unit_position == Numbers{0, 10, 42});
  CHECK(plain.encoders[0].llm_length == Numbers{111});
  CHECK(plain.llm_length == Numbers{100 + 10 + 2 + 30 + 3});

  sample.order = {text(7), unit("vision"), text(3), unit("audio"), text(40), unit("vision"), text(50)};
  const PhaseLengths ordered = test::lengths_of(model, {sample});
  CHECK(ordered.encoders[1].unit_position == Numbers{20});
  CHECK(ordered.encoders[2].unit_position == Numbers{7, 93, 50});
}

TEST_CASE("chains and diamonds of encoders") {
  Mllm chain = test::plain_model();
  chain.encoders.pop_back();
  chain.encoders[0].feeds = {"second"};
  chain.encoders.push_back(test::derived_encoder("second", 2, {"third"}));
  chain.encoders.push_back(test::derived_encoder("third", 3));
  validate(chain);
  Sample sample = test::counted(5, {{40, 13}, {8, 1}});
  sample.order = {text(2), unit("vision"), text(3), unit("vision")};
  const PhaseLengths along = test::lengths_of(chain, {sample});
  CHECK(along.encoders[1].unit_length == Numbers{13, 1});
  CHECK(along.encoders[2].unit_length == Numbers{7, 1});
  CHECK(along.encoders[2].unit_llm_length == Numbers{3, 1});
  CHECK(along.encoders[2].unit_position == Numbers{2, 8});
  CHECK(along.llm_length == Numbers{9});

  Mllm diamond = test::plain_model();
  diamond.encoders.pop_back();
  diamond.encoders[0].feeds = {"llm", "left", "right"};
  diamond.encoders.push_back(test::derived_encoder("left", 2, {"top"}));
  diamond.encoders.push_back(test::derived_encoder("right", 5, {"top", "llm"}));
  diamond.encoders.push_back(test::derived_encoder("top", 1));
  validate(diamond);
  const PhaseLengths across = test::lengths_of(diamond, {sample});
  // The first unit brings its own 13, right's 3, top's 7 (from left) and 3 (from right); the second one four times 1.
  CHECK(across.encoders[3].unit_length == Numbers{7, 1, 3, 1});
  CHECK(across.encoders[0].unit_position == Numbers{2, 31});
  CHECK(across.encoders[1].unit_position == Numbers{0, 0});
  CHECK(across.encoders[2].unit_position == Numbers{15, 32});
  CHECK(across.encoders[3].unit_position == Numbers{18, 33, 25, 34});
  CHECK(across.llm_length == Numbers{5 + 26 + 4});
}

TEST_CASE("an order that does not fit model or sample is refused, with the sample's name") {
  const Mllm model = test::plain_model();
  const auto refused = [](const Mllm& m, const Sample& sample, const char* message) {
    PhaseLengths lengths;
    CHECK_THROWS_WITH_AS(append(lengths, m, sample), message, InvalidInput);
    CHECK(lengths.samples() == 0);
    CHECK(lengths.encoders.empty());
  };
  Sample sample = test::counted(9, {{4, 1}, {4, 1}});
  sample.images = {{10, 10}};  // replaced by the counts
  sample.order = {text(9), unit("image"), unit("vision"), unit("vision")};
  refused(model, sample, R"(sample "s" names "image" in its order, but model plain has no further unit of that kind)");
  sample.order = {text(9), unit("vision")};
  refused(model, sample, R"(sample "s" has units of kind "vision" that its order does not name)");
  sample.order = {unit("vision"), text(8), unit("vision")};
  refused(model, sample, R"(sample "s" has an order with 8 text tokens, expected 9)");
  sample.order.clear();
  sample.supervised = 10;
  refused(model, sample, R"(sample "s" has 10 supervised tokens, expected at most its 9 text tokens)");

  Sample counted = test::counted(1);
  counted.tokens = {{"fusion", {{4, 1}}}};
  refused(test::fusion_model(), counted,
          R"(sample "s" has tokens of phase fusion, but in model plain that phase takes other encoders' outputs)");
  counted.tokens = {{"vision", std::vector<CountedUnit>(3, {1U << 31U, 1U << 31U})}};
  refused(test::fusion_model(), counted, "a sample of 6442450944 tokens: at most 4294967295");
}

TEST_CASE("paths through a graph of encoders multiply units up to a limit") {
  Mllm model = test::plain_model();
  model.encoders.resize(1);
  for (int level = 1; level <= 22; ++level) {  // two ways up every level
    const std::string name = std::to_string(level);
    for (Encoder& encoder : model.encoders) {
      if (encoder.feeds == std::vector<std::string>{"llm"}) encoder.feeds = {"a" + name, "b" + name};
    }
    model.encoders.push_back(test::derived_encoder("a" + name, 1));
    model.encoders.push_back(test::derived_encoder("b" + name, 1));
  }
  validate(model);
  PhaseLengths lengths;
  CHECK_THROWS_WITH_AS(append(lengths, model, test::counted(1, {{4, 1}})),
                       doctest::Contains("has more than 1048576 units in phase a"), InvalidInput);
}

TEST_CASE("supervised tokens are all text tokens unless a sample says otherwise") {
  std::vector<Sample> samples(3, test::counted(9));
  samples[1].supervised = 4;
  samples[2].supervised = 0;
  CHECK(test::lengths_of(test::plain_model(), samples).supervised == Numbers{9, 4, 0});
}

TEST_CASE("units that feed the LLM and text runs tile every sample's LLM sequence") {
  test::check_property("positions tile", [] {
    const Mllm model = test::any_graph_model();
    validate(model);
    const Sample sample = test::any_ordered_sample(model);
    const PhaseLengths lengths = test::lengths_of(model, {sample});
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces = text_runs(model, lengths, sample);
    for (std::size_t e = 0; e < model.encoders.size(); ++e) {
      const EncoderLengths& encoder = lengths.encoders[e];
      RC_ASSERT(encoder.unit_llm_length.size() == encoder.unit_length.size());
      RC_ASSERT(encoder.unit_position.size() == encoder.unit_length.size());
      std::uint64_t outputs = 0;
      for (std::size_t i = 0; i < encoder.unit_length.size(); ++i) {
        outputs += encoder.unit_llm_length[i];
        if (!feeds_llm(model.encoders[e])) {
          RC_ASSERT(encoder.unit_position[i] == 0U);
        } else {
          const std::uint64_t begin = encoder.unit_position[i];
          pieces.emplace_back(begin, begin + encoder.unit_llm_length[i]);
        }
      }
      RC_ASSERT(outputs == encoder.llm_length[0]);
    }
    std::sort(pieces.begin(), pieces.end());
    std::uint64_t place = 0;
    for (const auto& [begin, end] : pieces) {
      RC_ASSERT(begin == place);
      place = end;
    }
    RC_ASSERT(place == lengths.llm_length[0]);
  });
}

TEST_CASE("token rules that divide by zero are refused") {
  const auto refused = [](const TokenRule& rule, const std::string& why) {
    Mllm model = test::plain_model();
    model.encoders[1].rule = rule;
    const std::string message = "model plain, encoder 2 (\"audio\"): tokens " + why;
    CHECK_THROWS_WITH_AS(validate(model), message.c_str(), InvalidInput);
  };
  refused(TiledImages{.patch_px = 0}, "have patch_px = 0, expected at least 1");
  refused(TiledImages{.merge = 0}, "have merge = 0, expected at least 1");
  refused(NativeImages{.patch_px = 0}, "have patch_px = 0, expected at least 1");
  refused(NativeImages{.merge = 0}, "have merge = 0, expected at least 1");
  refused(NativeImages{.temporal_patch = 0}, "have temporal_patch = 0, expected at least 1");
  refused(AudioFrames{.conv_stride = 0}, "have conv_stride = 0, expected at least 1");
  refused(AudioFrames{.pool = 0}, "have pool = 0, expected at least 1");
  refused(AudioFrames{.frames_per_second = 1, .conv_stride = 2, .window_seconds = 1},
          "have windows of 1 s, which hold no token");
  Mllm model = test::fusion_model();
  model.encoders[2].rule = EncoderTokens{0};
  CHECK_THROWS_WITH_AS(validate(model), doctest::Contains("have pool = 0, expected at least 1"), InvalidInput);
}

TEST_CASE("graphs that cannot run in the model's order are refused") {
  const auto refused = [](const Mllm& model, const char* message) {
    CHECK_THROWS_WITH_AS(validate(model), message, InvalidInput);
  };
  const auto changed = [](auto&& change) {
    Mllm model = test::fusion_model();
    change(model.encoders);
    return model;
  };
  using Encoders = std::vector<Encoder>;
  refused(changed([](Encoders& e) { e[0].feeds = {"fussion"}; }),
          R"(model plain, encoder 1 ("vision"): feeds names "fussion", expected llm or the phase of a later encoder)");
  refused(
      changed([](Encoders& e) { e[2].feeds = {"fusion"}; }),
      "model plain, encoder 3 (\"fusion\"): feeds names \"fusion\", the encoder itself: expected llm or the phase of a "
      "later encoder");
  refused(
      changed([](Encoders& e) { e[2].feeds = {"vision"}; }),
      "model plain, encoder 3 (\"fusion\"): feeds names \"vision\", which stands before it: an encoder comes before "
      "those that it feeds");
  refused(changed([](Encoders& e) { std::swap(e[1], e[2]); }),
          "model plain, encoder 3 (\"audio\"): feeds names \"fusion\", which stands before it: an encoder comes before "
          "those that it feeds");
  refused(
      changed([](Encoders& e) { e[0].feeds = {"audio"}; }),
      "model plain, encoder 1 (\"vision\"): feeds names \"audio\", which takes a raw input: expected llm or an encoder "
      "with the rule encoder-tokens");
  refused(changed([](Encoders& e) {
            e[1].feeds = {"llm", "llm"};
          }),
          R"(model plain, encoder 2 ("audio"): feeds names "llm" twice)");
  refused(changed([](Encoders& e) { e[1].feeds.clear(); }),
          R"(model plain, encoder 2 ("audio"): feeds is empty, expected llm or the phases of later encoders)");
  refused(changed([](Encoders& e) { e[0].feeds = e[1].feeds = {"llm"}; }),
          "model plain, encoder 3 (\"fusion\"): tokens take other encoders' outputs, but no encoder feeds \"fusion\": "
          "expected its name in an earlier encoder's feeds");
  refused(changed([](Encoders& e) { e[1].phase = "vision"; }),
          "model plain, encoder 2 (\"vision\"): phase is \"vision\", which an earlier encoder has: every phase has a "
          "name of "
          "its own");
  refused(changed([](Encoders& e) { e[1].phase = "llm"; }),
          R"(model plain, encoder 2 ("llm"): phase must be a name other than llm and home)");
  refused(changed([](Encoders& e) { e[2].transformer.hidden = 500; }),
          "model plain, encoder 1 (\"vision\"): feeds names \"fusion\" of width 500, but the connector's output has "
          "1000: all "
          "that an encoder feeds must have the same width");
}

TEST_CASE("an encoder of other encoders' outputs has no front end and its own output width") {
  Mllm model = test::fusion_model();
  model.encoders[2].transformer.hidden = 500;
  const Encoder& vision = model.encoders[0];
  const Encoder& fusion = model.encoders[2];
  CHECK(input_bytes_per_token(fusion) == 0);
  CHECK(output_bytes_per_token(model, vision) == 2 * 500);
  CHECK(output_bytes_per_token(model, fusion) == 2 * 1000);
  CHECK(front_end_parameters(fusion) == 0);
  CHECK(front_end_flops_per_token(fusion) == 0);
  CHECK(parameters(fusion) == parameters(fusion.transformer) + parameters(fusion.connector));
  CHECK(tokens_per_output(fusion.rule) == 10);
  CHECK(attention_span(fusion.rule) == 0);
  // Plain layer: 2 · 6,000,000 operations a token and a tenth of 4,000,000 for the connector, 4,000 a pair.
  const ConvPackedCost cost = encoder_cost(test::fusion_model().encoders[2]);
  CHECK(cost.conv_alpha == 0);
  CHECK(static_cast<double>(cost.packed.alpha) / static_cast<double>(cost.packed.beta) ==
        doctest::Approx((12e6 + 0.4e6) / 4e3).epsilon(1.0 / 8192));
}
