#include "orchmllm/sim/model_file.hpp"

#include <fmt/format.h>

#include "orchmllm/base/error.hpp"
#include "orchmllm/model/encoder_graph.hpp"
#include "toml_reader.hpp"

namespace orch::sim {

namespace {

// Far above any model, and low enough that parameters and operations of a whole model fit into 64 bits.
constexpr std::uint64_t max_width = 1U << 20U;
constexpr std::uint64_t max_vocab = 1U << 24U;
constexpr std::uint64_t max_pixels_a_side = 16384;

Transformer read_transformer(TomlSection section, bool causal) {
  Transformer t;
  t.layers = section.integer("layers", 1, 10000);
  t.hidden = section.integer("hidden", 1, max_width);
  t.heads = section.integer("heads", 1, 65536);
  t.kv_heads = section.integer("kv_heads", 1, 65536, t.heads);
  if (t.heads % t.kv_heads != 0) section.fail("kv_heads", "must divide heads");
  t.head_dim = section.integer("head_dim", 1, 65536);
  if (t.heads * t.head_dim > max_width)
    section.fail("heads", fmt::format("times head_dim must be at most {}", max_width));
  t.ffn = section.integer("ffn", 1, max_width);
  t.gated_mlp = section.boolean("gated_mlp", false);
  t.qkv_bias = section.boolean("qkv_bias", false);
  t.linear_bias = section.boolean("linear_bias", false);
  t.causal = causal;
  t.vocab = section.integer("vocab", 0, max_vocab, 0);
  t.tied_embeddings = section.boolean("tied_embeddings", false);
  section.done();
  return t;
}

TokenRule read_rule(TomlSection section) {
  const std::string kind = section.text("rule");
  if (kind == "tiled-images") {
    TiledImages rule;
    rule.tile_px = section.integer32("tile_px", 1, max_pixels_a_side);
    rule.patch_px = section.integer32("patch_px", 1, max_pixels_a_side);
    rule.merge = section.integer32("merge", 1, 1024);
    rule.max_tiles = section.integer32("max_tiles", 1, 1000);
    if (rule.tile_px % (rule.patch_px * rule.merge) != 0)
      section.fail("tile_px", "must be a multiple of patch_px · merge");
    rule.thumbnail = section.boolean("thumbnail", true);
    rule.class_tokens = section.integer32("class_tokens", 0, 65536);
    rule.video_fps = section.number("video_fps", 1e-6, 1000);
    rule.video_max_frames = section.integer32("video_max_frames", 1, 1U << 24U);
    section.done();
    return rule;
  }
  if (kind == "native-images") {
    NativeImages rule;
    rule.patch_px = section.integer32("patch_px", 1, max_pixels_a_side);
    rule.merge = section.integer32("merge", 1, 1024);
    rule.min_pixels = section.integer("min_pixels", 1, 1ULL << 40U);
    rule.max_pixels = section.integer("max_pixels", rule.min_pixels, 1ULL << 40U);
    rule.marker_tokens = section.integer32("marker_tokens", 0, 65536);
    rule.max_aspect = section.number("max_aspect", 1, 1e6);
    rule.video_fps = section.number("video_fps", 1e-6, 1000);
    rule.temporal_patch = section.integer32("temporal_patch", 1, 1024);
    rule.video_min_pixels = section.integer("video_min_pixels", 1, 1ULL << 40U);
    rule.video_max_pixels = section.integer("video_max_pixels", rule.video_min_pixels, 1ULL << 40U);
    rule.video_total_pixels = section.integer("video_total_pixels", 1, 1ULL << 44U);
    rule.video_size = {section.integer32("video_width", 1, max_pixels_a_side),
                       section.integer32("video_height", 1, max_pixels_a_side)};
    section.done();
    return rule;
  }
  if (kind == "audio-frames") {
    AudioFrames rule;
    rule.frames_per_second = section.integer32("frames_per_second", 1, 100000);
    rule.conv_stride = section.integer32("conv_stride", 1, 1024);
    rule.pool = section.integer32("pool", 1, 1024);
    rule.window_seconds = section.integer32("window_seconds", 0, 3600);
    if (rule.window_seconds > 0 && rule.window_tokens() == 0)
      section.fail("window_seconds", "must hold at least one token");
    rule.pad_to_window = section.boolean("pad_to_window", false);
    section.done();
    return rule;
  }
  if (kind == "encoder-tokens") {
    const EncoderTokens rule{section.integer32("pool", 1, 1024)};
    section.done();
    return rule;
  }
  section.fail("rule",
               fmt::format("is \"{}\", expected tiled-images, native-images, audio-frames or encoder-tokens", kind));
}

/// All but the connector's output width, which later encoders may decide.
Encoder read_encoder(TomlSection& section) {
  Encoder encoder;
  encoder.phase = section.text("phase");
  encoder.transformer = read_transformer(section.section("transformer"), false);
  encoder.rule = read_rule(section.section("tokens"));
  if (has_raw_input(encoder)) {
    encoder.input_channels = section.integer("input_channels", 1, 65536);
  } else if (section.has("input_channels")) {
    section.fail("input_channels", "has no meaning with the rule encoder-tokens, which takes no raw input");
  }
  TomlSection connector = section.section("connector");
  encoder.connector = {connector.integer("input", 1, max_width), connector.integer("hidden", 1, max_width), 0};
  connector.done();
  encoder.feeds = section.texts("feeds", {"llm"});
  section.done();
  return encoder;
}

}  // namespace

Mllm load_model(const std::string& name) {
  const TomlFile file(find_file("models", name));
  TomlSection root = file.root();
  Mllm model;
  model.name = root.text("name");
  model.llm = read_transformer(root.section("llm"), true);
  if (model.llm.vocab == 0) root.fail("llm", "needs a vocab");
  std::vector<TomlSection> sections = root.sections("encoder");
  for (TomlSection& section : sections) model.encoders.push_back(read_encoder(section));
  root.done();
  for (Encoder& encoder : model.encoders) encoder.connector.output = output_width(model, encoder);
  if (const auto fault = find_fault(model)) sections[fault->encoder].fail(fault->key, fault->message);
  return model;
}

}  // namespace orch::sim
