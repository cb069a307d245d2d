// Model files with encoders that feed encoders: what loads, and what is refused with file and line.
#include <string>
#include <utility>
#include <vector>

#include "models.hpp"
#include "orchmllm/model/flops.hpp"
#include "orchmllm/sim/model_file.hpp"
#include "orchmllm/sim/workload.hpp"
#include "property.hpp"
#include "scratch.hpp"

using namespace orch;

namespace {

/// Holds one model file, m.toml.
struct Scratch : test::Scratch {
  Scratch() : test::Scratch("model-file") {}
  [[nodiscard]] std::string file(const std::string& text) const { return test::Scratch::file("m.toml", text); }
};

/// Lines are counted in the tests below.
const std::string fusion_file =
    "name = \"m\"\n"          // 1
    "[llm]\n"                 // 2
    "layers = 2\n"            // 3
    "hidden = 256\n"          // 4
    "heads = 4\n"             // 5
    "head_dim = 64\n"         // 6
    "ffn = 512\n"             // 7
    "vocab = 1000\n"          // 8
    "[[encoder]]\n"           // 9
    "phase = \"audio\"\n"     // 10
    "input_channels = 128\n"  // 11
    "feeds = [\"fusion\"]\n"  // 12
    "transformer = {layers = 1, hidden = 64, heads = 1, head_dim = 64, ffn = 128}\n"
    "connector = {input = 64, hidden = 64}\n"  // 14
    "[encoder.tokens]\n"                       // 15
    "rule = \"audio-frames\"\n"                // 16
    "frames_per_second = 100\n"                // 17
    "conv_stride = 2\n"                        // 18
    "pool = 2\n"                               // 19
    "window_seconds = 30\n"                    // 20
    "[[encoder]]\n"                            // 21
    "phase = \"fusion\"\n"                     // 22
    "transformer = {layers = 1, hidden = 128, heads = 2, head_dim = 64, ffn = 256}\n"
    "connector = {input = 128, hidden = 128}\n"  // 24
    "tokens = {rule = \"encoder-tokens\", pool = 4}\n";

std::string changed(const std::string& old, const std::string& text) {
  std::string file = fusion_file;
  return file.replace(file.find(old), old.size(), text);
}

}  // namespace

TEST_CASE("an encoder of other encoders' outputs is loaded") {
  const Scratch scratch;
  const Mllm model = sim::load_model(scratch.file(fusion_file));
  REQUIRE(model.encoders.size() == 2);
  const Encoder& audio = model.encoders[0];
  const Encoder& fusion = model.encoders[1];
  CHECK(audio.feeds == std::vector<std::string>{"fusion"});
  CHECK(fusion.feeds == std::vector<std::string>{"llm"});
  CHECK(audio.connector.output == 128);
  CHECK(fusion.connector.output == 256);
  CHECK(std::get<EncoderTokens>(fusion.rule).pool == 4);
  CHECK(fusion.input_channels == 0);
  validate(model);

  Sample sample = test::counted(10);
  sample.audio = {{2'000'000}};  // 100 tokens in audio, 50 behind it, 13 behind fusion
  const PhaseLengths lengths = test::lengths_of(model, {sample});
  CHECK(lengths.encoders[1].unit_length == std::vector<std::uint32_t>{50});
  CHECK(lengths.llm_length == std::vector<std::uint32_t>{23});

  const std::vector<sim::PhaseShape> shapes = sim::phase_shapes(model);
  CHECK(shapes[1].front_end_flops_per_token == 0);
  CHECK(shapes[1].first_parameters == 0);
  CHECK(!shapes[1].padded_front_end);
  CHECK(shapes[1].attention_span == 0);
  CHECK(shapes[1].connector_flops_per_output == 2.0 * (128 * 128 + 128 * 256));
}

TEST_CASE("encoders that cannot run in the file's order are refused with file and line") {
  const Scratch scratch;
  const std::vector<std::pair<std::string, std::string>> files{
      {changed("[\"fusion\"]", "[\"fussion\"]"),
       ":12: feeds names \"fussion\", expected llm or the phase of a later encoder"},
      {changed("[\"fusion\"]", "[\"audio\"]"), ":12: feeds names \"audio\", the encoder itself"},
      {changed("[\"fusion\"]", "[]"), ":12: feeds is empty, expected llm or the phases of later encoders"},
      {changed("[\"fusion\"]", "\"fusion\""), ":12: feeds must be a list of strings"},
      {changed("[\"fusion\"]", "[7]"), ":12: feeds must be a list of strings"},
      {changed("[\"fusion\"]", "[\"fusion\", \"fusion\"]"), ":12: feeds names \"fusion\" twice"},
      {changed("[\"fusion\"]", "[\"fusion\", \"llm\"]"),
       ":12: feeds names \"llm\" of width 256, but the connector's output has 128"},
      {changed("feeds = [\"fusion\"]\n", "\n"),
       ":25: tokens take other encoders' outputs, but no encoder feeds \"fusion\""},
      {fusion_file + "feeds = [\"audio\"]\n", ":26: feeds names \"audio\", which stands before it"},
      {changed("phase = \"fusion\"\n", "phase = \"fusion\"\ninput_channels = 3\n"),
       ":23: input_channels has no meaning"},
      {changed("phase = \"fusion\"", "phase = \"audio\""), ":12: feeds names \"fusion\", expected llm"},
      {changed("phase = \"fusion\"", "phase = \"llm\""), ":12: feeds names \"fusion\", expected llm"},
      {changed("phase = \"audio\"", "phase = \"llm\""), ":10: phase must be a name other than llm"},
      {changed("phase = \"audio\"", "phase = \"fusion\""), ":12: feeds names \"fusion\", the encoder itself"},
      {changed("tokens = {rule = \"encoder-tokens\", pool = 4}",
               "input_channels = 128\ntokens = {rule = \"audio-frames\", frames_per_second = 100, conv_stride = 2, "
               "pool = 2, "
               "window_seconds = 0}"),
       ":12: feeds names \"fusion\", which takes a raw input"},
      {changed("pool = 4", "pool = 0"), ":25: pool must be an integer from 1 to 1024"},
      {changed(", pool = 4", ""), ":25: pool is missing"},
      {changed("pool = 4", "pool = 4, merge = 2"), ":25: unknown key merge"},
      {changed("encoder-tokens", "encoder-token"),
       ":25: rule is \"encoder-token\", expected tiled-images, native-images, audio-frames or encoder-tokens"},
  };
  for (const auto& bad : files) {
    const std::string path = scratch.file(bad.first);
    CAPTURE(bad.first);
    CHECK_THROWS_WITH_AS((void)sim::load_model(path), doctest::Contains(bad.second.c_str()), InvalidInput);
    CHECK_THROWS_WITH_AS((void)sim::load_model(path), doctest::Contains("m.toml:"), InvalidInput);
  }
}

TEST_CASE("a phase that stands twice is refused where it does") {
  const Scratch scratch;
  const std::string twice = fusion_file + fusion_file.substr(fusion_file.find("[[encoder]]\nphase = \"fusion\""));
  CHECK_THROWS_WITH_AS((void)sim::load_model(scratch.file(twice)),
                       doctest::Contains("m.toml:27: phase is \"fusion\", which an earlier encoder has"), InvalidInput);
}
