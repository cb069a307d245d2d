// orch trace convert: every importer on small inputs with every number checked, and what it refuses with which words.
#include <zlib.h>

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "importer.hpp"
#include "orchmllm/io/json_items.hpp"
#include "orchmllm/io/trace_writer.hpp"

using namespace orch;
using namespace orch::apps;
namespace fs = std::filesystem;

namespace {

/// A folder of its own for every test, removed at its end.
struct Scratch {
  fs::path folder = fs::temp_directory_path() / ("orchmllm-test-importers-" + std::to_string(::getpid()));
  Scratch() { fs::create_directories(folder); }
  ~Scratch() { fs::remove_all(folder); }
  [[nodiscard]] std::string file(const std::string& name, const std::string& bytes) const {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return (folder / name).string();
  }
};

std::string gzip(const std::string& text) {
  const fs::path path = fs::temp_directory_path() / ("orchmllm-test-gzip-" + std::to_string(::getpid()));
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  fs::remove(path);
  return bytes.str();
}

/// Everything that a source may lack.
ImportOptions generous() {
  ImportOptions options;
  options.tokens_per_word = 1.5;
  options.image_size = Image{640, 480};
  options.tokens_per_image = 100;
  options.encoder_ratio = 4;
  options.audio_seconds = 2.5;
  options.video_seconds = 8;
  options.frame_shift = 0.01;
  return options;
}

ImportOptions skipping(ImportOptions options = {}) {
  options.skip_incomplete = true;
  return options;
}

ImportOptions with_columns(std::vector<std::string> columns, ImportOptions options = generous()) {
  options.columns = std::move(columns);
  return options;
}

struct Converted {
  std::string lines;  ///< of the trace
  std::uint64_t samples = 0;
  std::uint64_t skipped = 0;
  std::vector<std::string> notes;
};

Converted convert(const std::string& format, const std::string& path, const ImportOptions& options) {
  Converted result;
  Import import(options, [&](const Sample& sample) { io::append_sample(result.lines, sample); });
  importer(format).read(path, import);
  result.samples = import.samples();
  result.skipped = import.skipped();
  result.notes = import.notes();
  return result;
}

std::string refusal(const std::string& format, const std::string& path, const ImportOptions& options) {
  try {
    (void)convert(format, path, options);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "accepted";
}

/// Converts and checks that the lines are a trace that reads back as it was written.
std::string lines(const std::string& format, const std::string& path, const ImportOptions& options = generous()) {
  const Converted result = convert(format, path, options);
  const std::string trace = path + ".trace";
  std::ofstream(trace, std::ios::binary) << result.lines;
  std::string again;
  (void)io::read_trace(trace, [&](const Sample& sample) { io::append_sample(again, sample); });
  CHECK(again == result.lines);
  return result.lines;
}

}  // namespace

TEST_CASE("omnibal: lengths, both names of the flags, a list") {
  const Scratch scratch;
  const std::string rows =
      "[\n{\"vit_num\":3,\"token_num\":811,\"image_flags\":3},\n"
      "{\"vit_num\":1,\"token_num\":40,\"image_flag\":0}]";
  const std::string path = scratch.file("lengths.json", rows);
  const std::string tiles = "[[1024,256],[1024,256],[1024,256]]";
  CHECK(lines("omnibal", path) == "{\"id\":\"omnibal-0\",\"task\":\"omnibal\",\"text\":43,\"tokens\":{\"vision\":" +
                                      tiles + "}}\n{\"id\":\"omnibal-1\",\"task\":\"omnibal\",\"text\":40}\n");
  const std::string list = scratch.file("list.json", R"({"a":{"token_lengths":"./lengths.json"},
    "gone":{"token_lengths":"gone.json"}})");
  CHECK(refusal("omnibal", list, {}) ==
        list + ":2: entry \"gone\": the file " + (scratch.folder / "gone.json").string() +
            " is not there, expected it relative to the list's folder, or --skip-incomplete");
  const Converted some = convert("omnibal", list, skipping());
  CHECK(some.samples == 2);
  CHECK(some.notes == std::vector<std::string>{"skipped entry \"gone\": its rows cannot be read"});
  CHECK(some.lines.starts_with("{\"id\":\"a-0\",\"task\":\"a\",\"text\":43"));
  ImportOptions only;
  only.only = {"a"};
  CHECK(convert("omnibal", list, only).samples == 2);
  only.only = {"b"};
  CHECK(refusal("omnibal", list, only) == list + ": no entry \"b\" (--only), there are: a, gone");
}

TEST_CASE("llava: sizes, tags in order, what is learnt") {
  const Scratch scratch;
  const std::string path = scratch.file("rows.json", R"([
    {"id":"x","image":"a.jpg","width":100,"height":50,"conversations":[
      {"from":"human","value":"<image>\nwhat is this"},{"from":"gpt","value":"a dog"}]},
    {"id":7,"image":["a.jpg","b.jpg"],"width_list":[10,20],"height_list":[30,40],"conversations":[
      {"from":"human","value":"first <image> then <image> which"},{"from":"gpt","value":"the second one"}]},
    {"conversations":[{"from":"human","value":"<b>hi</b>"},{"from":"gpt","value":"hello  there\tyou"}]},
    {"image":"c.jpg","video":["v.mp4"],"audio":"s.wav","conversations":[{"from":"human","value":"x"}]}])");
  CHECK(lines("llava", path) ==
        R"({"id":"x","task":"llava","text":8,"images":[[100,50]],"supervised":3}
{"id":"7","task":"llava","text":9,"images":[[10,30],[20,40]],"order":[2,"image",1,"image",6],"supervised":4}
{"id":"llava-2","task":"llava","text":6,"supervised":4}
{"id":"llava-3","task":"llava","text":2,"images":[[640,480]],"audio":[2.500],"video":[{"seconds":8.000}],"order":["image","video","audio",2]}
)");
  const Converted some = convert("llava", path, [] {
    ImportOptions options;
    options.tokens_per_word = 1;
    return skipping(options);
  }());
  CHECK(some.samples == 3);
  CHECK(some.skipped == 1);
}

TEST_CASE("internvl: rows by annotation, repeated and cut") {
  const Scratch scratch;
  (void)scratch.file("data/r.jsonl",
                     R"({"id":1,"image":"a","width":1,"height":2,"conversations":[{"from":"gpt","value":"a b"}]}
{"id":2,"conversations":[{"from":"gpt","value":"c"}]}
{"id":3,"conversations":[{"from":"gpt","value":"d"}]}
)");
  const std::string path = scratch.file("meta.json", R"({
    "half":{"root":"x","annotation":"data/r.jsonl","repeat_time":0.7,"length":3},
    "twice":{"root":"x","annotation":"data/r.jsonl","repeat_time":2}})");
  const Converted all = convert("internvl", path, generous());
  CHECK(all.samples == 2 + 6);
  CHECK(all.lines.starts_with(
      "{\"id\":\"1\",\"task\":\"half\",\"text\":3,\"images\":[[1,2]]}\n{\"id\":\"2\",\"task\":\"half\","));
}

TEST_CASE("qwen-vl and ms-swift: packed rows, parts of messages") {
  const Scratch scratch;
  const std::string packed = scratch.file(
      "packed.jsonl",
      R"([{"image":"a","conversations":[{"from":"human","value":"<image>one two"},{"from":"gpt","value":"three four"}]},{"images":["b"],"conversations":[{"from":"human","value":"<image>five six"}]}]
[{"conversations":[{"from":"human","value":"x y"}]}]
)");
  CHECK(
      lines("qwen-vl", packed) ==
      R"({"id":"qwen-vl-0","task":"qwen-vl","text":9,"images":[[640,480],[640,480]],"order":["image",6,"image",3],"supervised":3}
{"id":"qwen-vl-1","task":"qwen-vl","text":3}
)");
  CHECK(recognise(packed).importer->name == std::string("qwen-vl"));
  const std::string swift = scratch.file(
      "swift.jsonl",
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","image":"a"},{"type":"text","text":"this now"}]},{"role":"assistant","content":"yes"},{"role":"assistant","content":null}],"images":[{"bytes":null,"path":"a"}]}
{"messages":[{"role":"user","content":"<audio><video>a b"}],"audios":["x"],"videos":["y"]}
)");
  CHECK(lines("ms-swift", swift) ==
        R"({"id":"ms-swift-0","task":"ms-swift","text":6,"images":[[640,480]],"order":[2,"image",4],"supervised":2}
{"id":"ms-swift-1","task":"ms-swift","text":3,"audio":[2.500],"video":[{"seconds":8.000}],"order":["audio","video",3]}
)");
}

TEST_CASE("llama-factory: alpaca rows, dataset_info with columns and tags") {
  const Scratch scratch;
  const std::string alpaca = scratch.file("alpaca.json", R"([{"instruction":"say it","input":"now","output":"it it it"},
    {"instruction":"go","input":"","output":"gone"}])");
  CHECK(lines("llama-factory", alpaca) == R"({"id":"llama-factory-0","task":"llama-factory","text":9,"supervised":4}
{"id":"llama-factory-1","task":"llama-factory","text":3,"supervised":2}
)");
  (void)scratch.file("chat.json",
                     R"([{"messages":[{"role":"user","content":"<audio>hear"},{"role":"assistant","content":"a b c"}],
    "audios":["x.wav"],"system":"be kind"}])");
  const std::string info = scratch.file("dataset_info.json", R"({
    "one":{"file_name":"alpaca.json","num_samples":1},
    "chat":{"file_name":"chat.json","formatting":"sharegpt",
      "columns":{"messages":"messages","audios":"audios","system":"system"},
      "tags":{"role_tag":"role","content_tag":"content","user_tag":"user","assistant_tag":"assistant"}},
    "hub":{"hf_hub_url":"some/where"},
    "table":{"file_name":"x.parquet"},
    "pairs":{"file_name":"chat.json","ranking":true}})");
  const Converted all = convert("llama-factory", info, skipping(generous()));
  CHECK(all.lines ==
        "{\"id\":\"one-0\",\"task\":\"one\",\"text\":9,\"supervised\":4}\n"
        "{\"id\":\"chat-1\",\"task\":\"chat\",\"text\":9,\"audio\":[2.500],\"order\":[3,\"audio\",6],\"supervised\":4}"
        "\n");
  CHECK(all.notes.size() == 3);
}

TEST_CASE("nemo: durations, conversations") {
  const Scratch scratch;
  const std::string path =
      scratch.file("m.jsonl.gz", gzip(
                                     R"({"audio_filepath":"/a.flac","duration":4.94,"text":"re enter butler"}
{"audio_filepath":"/b.flac","duration":0.0000001,"offset":3}
{"id":"c","conversations":[{"from":"User","value":"hear this","type":"text"},{"from":"User","value":"a.wav","type":"audio","duration":2.25},{"from":"Assistant","value":"heard","type":"text"}]}
)"));
  CHECK(lines("nemo", path) == R"({"id":"nemo-0","task":"nemo","text":4,"audio":[4.940]}
{"id":"nemo-1","task":"nemo","text":0,"audio":[0.000001]}
{"id":"c","task":"nemo","text":4,"audio":[2.250],"order":[3,"audio",1],"supervised":2}
)");
}

TEST_CASE("lhotse: cuts, recordings, supervisions, mixed cuts") {
  const Scratch scratch;
  const std::string path = scratch.file("cuts.json", R"([
    {"id":"cut","start":0.0,"duration":10.5,"channel":0,"type":"MonoCut","supervisions":[
      {"id":"s1","recording_id":"r","start":0,"duration":5,"text":"EXAMPLE OF TEXT"},{"id":"s2","text":"MORE"}]},
    {"id":"rec","sources":[],"sampling_rate":16000,"num_samples":174160},
    {"id":"sup","recording_id":"r","start":1,"duration":2.5,"text":"a b"},
    {"id":"mix","type":"MixedCut","tracks":[{"cut":{"id":"x","duration":3,"supervisions":[{"text":"q"}]}},
      {"offset":2.5,"cut":{"id":"y","duration":4}}]}])");
  const std::string expected = R"({"id":"cut","task":"lhotse","text":6,"audio":[10.500]}
{"id":"rec","task":"lhotse","text":0,"audio":[10.885]}
{"id":"sup","task":"lhotse","text":3,"audio":[2.500]}
{"id":"mix","task":"lhotse","text":2,"audio":[6.500]}
)";
  CHECK(lines("lhotse", path) == expected);
}

TEST_CASE("kaldi: durations, frames, segments, a folder with texts") {
  const Scratch scratch;
  CHECK(lines("kaldi", scratch.file("utt2dur", "a 10.885 \nb 4.65\n\n")) ==
        "{\"id\":\"a\",\"task\":\"kaldi\",\"text\":0,\"audio\":[10.885]}\n"
        "{\"id\":\"b\",\"task\":\"kaldi\",\"text\":0,\"audio\":[4.650]}\n");
  CHECK(lines("kaldi", scratch.file("x_utt2num_frames.gz", gzip("a 1087 \n"))) ==
        "{\"id\":\"a\",\"task\":\"kaldi\",\"text\":0,\"audio\":[10.870]}\n");
  (void)scratch.file("data/text", "a so it is\nb not in segments\nc x\n");
  (void)scratch.file("data/segments", "a rec 1.5 3.25\r\nc rec 4 5\n");
  (void)scratch.file("data/utt2dur", "ignored 1\n");
  const std::string folder = (scratch.folder / "data").string();
  CHECK(convert("kaldi", folder, generous()).lines ==
        "{\"id\":\"a\",\"task\":\"kaldi\",\"text\":4,\"audio\":[1.750]}\n"
        "{\"id\":\"c\",\"task\":\"kaldi\",\"text\":2,\"audio\":[1.000]}\n");
  CHECK(recognise(folder).reason == "the folder has " + folder + "/segments");
}

TEST_CASE("azure: times of both years, images") {
  const Scratch scratch;
  const std::string path = scratch.file("a.csv",
                                        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\r\n"
                                        "2023-12-31 23:59:59.9799600,0,4808,10\r\n"
                                        "2024-01-01T00:00:01.5Z,2,949,126\r\n");
  CHECK(lines("azure", path) == R"({"id":"azure-0","task":"azure","text":4808,"t":0}
{"id":"azure-1","task":"azure","text":749,"tokens":{"vision":[[400,100],[400,100]]},"t":1.52004}
)");
  CHECK(convert("azure", path, skipping()).skipped == 1);
}

TEST_CASE("mooncake: milliseconds, prompt lengths") {
  const Scratch scratch;
  const std::string path = scratch.file(
      "m.jsonl", "{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [46, 47]}\n");
  CHECK(lines("mooncake", path) == "{\"id\":\"mooncake-0\",\"task\":\"mooncake\",\"text\":6955,\"t\":27.482}\n");
}

TEST_CASE("servegen: draws follow rates and histograms, and are the same every time") {
  const Scratch scratch;
  const std::string trace = scratch.file("c-trace.csv",
                                         "0,10,0.5,Gamma,4,0.025\n1000,0,0,,0,0\n2000,20,1.4,Weibull,0.7,0.04\n"
                                         "3000,5,2,Gamma,0.25,0.8\n");
  const std::string dataset = scratch.file("c-dataset.json", R"({
    "0":{"text_tokens":"{136: 0.25, 372: 0.75}","image_count":"{1: 0.5, 2: 0.5}","image_tokens":"{100: 1.0}",
      "audio_count":"{1: 1.0}","audio_tokens":"{0: 1.0}"},
    "2000":{"text_tokens":"{7: 1.0}","audio_count":"{1: 1.0}","audio_tokens":"{30: 1.0}"}})");
  const std::string once = lines("servegen", trace);
  CHECK(once == lines("servegen", dataset));
  std::uint64_t first = 0, second = 0, third = 0, short_text = 0, images = 0;
  (void)io::read_trace(trace + ".trace", [&](const Sample& sample) {
    if (*sample.arrival_seconds < 1000) {
      ++first;
      short_text += sample.text == 136 ? 1 : 0;
      images += sample.tokens.front().units.size();
      CHECK(sample.tokens.front().units.front().encoder_length == 400);
    } else {
      (*sample.arrival_seconds < 3000 ? second : third)++;
      CHECK(*sample.arrival_seconds >= 2000);
      CHECK(sample.text == 7);
      CHECK(sample.tokens.front().phase == "audio");
    }
  });
  CHECK(first == doctest::Approx(10000).epsilon(0.03));
  CHECK(second == doctest::Approx(20000).epsilon(0.05));
  CHECK(third == doctest::Approx(5000).epsilon(0.1));
  CHECK(static_cast<double>(short_text) == doctest::Approx(0.25 * static_cast<double>(first)).epsilon(0.1));
  CHECK(static_cast<double>(images) == doctest::Approx(1.5 * static_cast<double>(first)).epsilon(0.03));
  ImportOptions other = generous();
  other.seed = 2;
  CHECK(convert("servegen", trace, other).lines != once);
}

TEST_CASE("csv: every field, divisors, quotes") {
  const Scratch scratch;
  const std::string path = scratch.file("t.csv",
                                        "\xef\xbb\xbf,path,a/b,len,w,h,n,said\n"
                                        "0,\"x, \"\"y\"\"\",5,32000,640,480,2,\"one two\nthree\"\n"
                                        "1,z,7,16000,32,16,0,four\n");
  CHECK(
      lines("csv", path, with_columns({"id=path", "text=a/b", "audio=len/16000", "width=w", "height=h", "images=n"})) ==
      R"({"id":"x, \"y\"","task":"csv","text":5,"images":[[640,480],[640,480],[640,480]],"audio":[2.000]}
{"id":"z","task":"csv","text":7,"images":[[32,16]],"audio":[1.000]}
)");
  CHECK(lines("csv", path, with_columns({"task=path", "words=said", "video=len/16000", "frames=a/b", "t=len/1000"})) ==
        R"({"id":"csv-0","task":"x, \"y\"","text":4,"video":[{"frames":5,"seconds":2.000}],"t":32}
{"id":"csv-1","task":"z","text":2,"video":[{"frames":7,"seconds":1.000}],"t":16}
)");
}

TEST_CASE("auto: known, unknown, ambiguous") {
  const Scratch scratch;
  CHECK(
      recognise(scratch.file("a.json", "{\"id\":1,\"conversations\":[{\"from\":\"human\",\"value\":\"x\"}]}")).reason ==
      "rows have conversations of from and value");
  const auto refused = [](const std::string& path) -> std::string {
    try {
      return recognise(path).importer->name;
    } catch (const InvalidInput& error) {
      return error.what();
    }
  };
  const std::string table = scratch.file("b.csv", "a,b\n1,2\n");
  CHECK(refused(table).starts_with(table + ": the format is not recognised, expected --from with one of\n  azure "));
  const std::string both =
      scratch.file("c.jsonl", R"({"audio_filepath":"a","duration":1,"messages":[{"role":"user","content":"x"}]})");
  CHECK(refused(both) == both +
                             ": several formats fit, expected --from with one of\n"
                             "  ms-swift       rows have messages of role and content\n"
                             "  nemo           rows have audio_filepath and duration");
  CHECK(refused("--nowhere").find("--nowhere: No such file or directory") == 0);
  CHECK_THROWS_AS((void)importer("nonsense"), InvalidInput);
}

TEST_CASE("arrays of any size stream, on one line too") {
  const Scratch scratch;
  std::string rows = "[";
  for (int i = 0; i < 700000; ++i) rows += "{\"vit_num\":0,\"token_num\":5,\"image_flags\":0},";
  rows.back() = ']';
  REQUIRE(rows.size() > io::max_line_bytes);
  CHECK(convert("omnibal", scratch.file("long.json", rows), {}).samples == 700000);
}

// Options: "-" none, "g" generous, else --columns separated by semicolons. "%" stands for the file's path, "%/" for its
// folder.
TEST_CASE("what is malformed is refused: file, line, what is wrong, what would be right") {
  struct Bad {
    std::string format, file, options, content, message;
  };
  const std::vector<Bad> all{
      {"omnibal", "x.json", "g", "", "%:1: the file is empty"},
      {"omnibal", "x.json", "g", "  ", "%:1: the file is empty"},
      {"omnibal", "x.json", "g", "7", "%:1: the record is 7, expected an object"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1", "%:1: the document ends inside the record that begins here"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1}", "%:1: record 1: no \"token_num\" in the record"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1}]", "%:1: record 1: no \"token_num\" in the record"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1,\"token_num\":300,\"image_flags\":1}",
       "%:1: the document ends early"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1,\"token_num\":300,\"image_flags\":1},]",
       "%:1: a comma behind the last record"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1,\"token_num\":300,\"image_flags\":1} {\"vit_num\":1}]",
       "%:1: no comma behind record 1"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1,\"token_num\":300,\"image_flags\":1}] x",
       "%:1: text behind the end of the document"},
      {"omnibal", "x.json", "g", "[5]", "%:1: record 1: the record is 5, expected an object"},
      {"omnibal", "x.json", "g",
       "[{\"vit_num\":1,\"token_num\":300,\"image_flags\":1},\n{\"vit_num\":-1,\"token_num\":300,\"image_flags\":1}]",
       "%:2: record 2: vit_num is -1, expected an integer from 0 to 65536"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1,\"token_num\":2147483648,\"image_flags\":1}]",
       "%:1: record 1: token_num is 2147483648, expected an integer from 0 to 1073741824"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1,\"token_num\":1e3,\"image_flags\":1}]",
       "%:1: record 1: token_num is 1000.0, expected an integer from 0 to 1073741824"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1,\"token_num\":18446744073709551616,\"image_flags\":1}]",
       "%:1: record 1: not JSON: Problem while parsing a number"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1,\"token_num\":255,\"image_flags\":1}]",
       "%:1: record 1: token_num is 255, expected at least 256, 256 for each of 1 tiles"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1,\"token_num\":900,\"image_flags\":2}]",
       "%:1: record 1: image_flags is 2, expected an integer from 0 to 1"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":1,\"token_num\":900}]",
       "%:1: record 1: no \"image_flags\" in the record"},
      {"omnibal", "x.json", "g", "[{\"vit_num\":\"1\",\"token_num\":900,\"image_flags\":1}]",
       "%:1: record 1: vit_num is \"1\", expected an integer from 0 to 65536"},
      {"omnibal", "x.json", "g", "{\"a\":{\"token_lengths\":5}}",
       "%:1: entry \"a\": token_lengths is 5, expected a string"},
      {"omnibal", "x.json", "g", "{\"a\":{\"token_lengths\":\"/dev/zero\"}}",
       "%:1: entry \"a\": the file /dev/zero is not there, expected it relative to the list's folder, or "
       "--skip-incomplete"},
      {"omnibal", "x.json", "g", "{\"a\":{\"token_lengths\":\"x\"},\"b\":{}}",
       "%:1: entry \"b\": no \"token_lengths\" in the record"},
      {"llava", "x.json", "g", "[{\"id\":1}]", "%:1: record 1: no \"conversations\" in the record"},
      {"llava", "x.json", "g", "[{\"id\":[1],\"conversations\":[]}]",
       "%:1: record 1: id is [1], expected a string or an integer"},
      {"llava", "x.json", "g", "[{\"conversations\":{}}]", "%:1: record 1: conversations is {}, expected a list"},
      {"llava", "x.json", "g", "[{\"conversations\":[1]}]",
       "%:1: record 1: a turn of conversations is 1, expected an object"},
      {"llava", "x.json", "g", "[{\"conversations\":[{\"value\":\"x\"}]}]", "%:1: record 1: no \"from\" in the record"},
      {"llava", "x.json", "g", "[{\"conversations\":[{\"from\":\"human\",\"value\":7}]}]",
       "%:1: record 1: value is 7, expected a string"},
      {"llava", "x.json", "-", "[{\"conversations\":[{\"from\":\"human\",\"value\":\"words\"}]}]",
       "%:1: record 1: the text has no token counts, expected --tokens-per-word R (an estimate, such as 1.3; no "
       "tokenizer is built in)"},
      {"llava", "x.json", "-", "[{\"image\":\"a\",\"conversations\":[]}]",
       "%:1: record 1: 1 images without sizes, expected width and height (width_list and height_list), --image-size "
       "WxH, or --skip-incomplete"},
      {"llava", "x.json", "-", "[{\"video\":\"a\",\"conversations\":[]}]",
       "%:1: record 1: 1 videos without durations, expected --video-seconds S, or --skip-incomplete"},
      {"llava", "x.json", "-", "[{\"audio\":[\"a\",\"b\"],\"conversations\":[]}]",
       "%:1: record 1: 2 audio clips without durations, expected --audio-seconds S, or --skip-incomplete"},
      {"llava", "x.json", "g", "[{\"image\":5,\"conversations\":[]}]",
       "%:1: record 1: image is 5, expected a path or a list of paths"},
      {"llava", "x.json", "g", "[{\"image\":\"a\",\"width\":0,\"height\":5,\"conversations\":[]}]",
       "%:1: record 1: width is 0, expected an integer from 1 to 1048576"},
      {"llava", "x.json", "g", "[{\"image\":\"a\",\"width\":1048577,\"height\":5,\"conversations\":[]}]",
       "%:1: record 1: width is 1048577, expected an integer from 1 to 1048576"},
      {"llava", "x.json", "g", "[{\"image\":[\"a\",\"b\"],\"width\":5,\"height\":5,\"conversations\":[]}]",
       "%:1: record 1: 1 sizes, expected 2, one for each image"},
      {"llava", "x.json", "g", "[{\"image\":[\"a\"],\"width_list\":[5,6],\"height_list\":[5],\"conversations\":[]}]",
       "%:1: record 1: 2 entries in width_list, 1 in height_list, expected as many"},
      {"llava", "x.json", "g", "[{\"image\":[\"a\"],\"width_list\":[5],\"height_list\":[\"5\"],\"conversations\":[]}]",
       "%:1: record 1: height_list is \"5\", expected an integer from 1 to 1048576"},
      {"llava", "x.json", "g",
       "[{\"image\":[\"a\"],\"conversations\":[{\"from\":\"human\",\"value\":\"<image> <image>\"}]}]",
       "%:1: record 1: 2 tags <image>, but 1 in the row's list, expected as many"},
      {"llava", "x.json", "g", "[{\"conversations\":[{\"from\":\"human\",\"value\":\"<video>\"}]}]",
       "%:1: record 1: 1 tags <video>, but 0 in the row's list, expected as many"},
      {"llava", "x.jsonl", "g", "{\"conversations\":[]}\n{\"conversations\":[}\n",
       "%:2: not JSON: The JSON document has an improper structure: missing or superfluous commas, braces, missing "
       "keys, etc."},
      {"llava", "x.jsonl", "g", "{\"conversations\":[]}\n\n\"x\"\n", "%:3: the record is \"x\", expected an object"},
      {"internvl", "x.json", "g", "[]", "%:1: the document is no object, expected {\"name\": …}"},
      {"internvl", "x.json", "g", "{\"a\":5}", "%:1: entry \"a\": the entry is 5, expected an object"},
      {"internvl", "x.json", "g", "{\"a\":{}}", "%:1: entry \"a\": no \"annotation\" in the record"},
      {"internvl", "x.json", "g", "{\"a\":{\"annotation\":\"none.jsonl\"}}",
       "%:1: entry \"a\": the file %/none.jsonl is not there, expected it relative to the list's folder, or "
       "--skip-incomplete"},
      {"internvl", "x.json", "g", "{\"a\" {\"annotation\":\"none.jsonl\"}}", "%:1: no colon behind the name \"a\""},
      {"internvl", "x.json", "g", "{a:1}", "%:1: a member has no name, expected \"name\": value"},
      {"internvl", "x.json", "g", "{\"a\":{\"annotation\":\"x.json\",\"repeat_time\":-1}}",
       "%:1: entry \"a\": repeat_time is -1, expected a number from 0.000000 to 1000.000000"},
      {"internvl", "x.json", "g", "{\"a\":{\"annotation\":\"x.json\",\"repeat_time\":1e9}}",
       "%:1: entry \"a\": repeat_time is 1000000000.0, expected a number from 0.000000 to 1000.000000"},
      {"internvl", "x.json", "g", "{\"a\":{\"annotation\":\"x.json\"}}", "%:1: no \"conversations\" in the record"},
      {"qwen-vl", "x.jsonl", "g", "[5]\n[6]\n", "%:1: a sample of the packed row is 5, expected an object"},
      {"qwen-vl", "x.jsonl", "g", "[{\"conversations\":[]}]\n[{\"image\":\"a\"}]\n",
       "%:2: no \"conversations\" in the record"},
      {"ms-swift", "x.jsonl", "g", "{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}]}",
       "%:1: no \"type\" in the record"},
      {"ms-swift", "x.jsonl", "g", "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"smell\"}]}]}",
       "%:1: a part of a message has the type \"smell\", expected text, image, video or audio"},
      {"ms-swift", "x.jsonl", "g", "{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}",
       "%:1: a part of a message is \"x\", expected an object"},
      {"ms-swift", "x.jsonl", "g", "{\"messages\":[{\"role\":5,\"content\":\"x\"}]}",
       "%:1: role is 5, expected a string"},
      {"ms-swift", "x.jsonl", "-", "{\"messages\":[{\"role\":\"user\",\"content\":\"<audio>\"}],\"audios\":[\"a\"]}",
       "%:1: 1 audio clips without durations, expected --audio-seconds S, or --skip-incomplete"},
      {"llama-factory", "x.json", "g", "[{\"instruction\":\"x\"}]", "%:1: record 1: no \"output\" in the record"},
      {"llama-factory", "x.json", "g", "[{\"instruction\":5,\"output\":\"x\"}]",
       "%:1: record 1: instruction is 5, expected a string"},
      {"llama-factory", "x.json", "-", "{\"a\":{\"hf_hub_url\":\"x/y\"}}",
       "%:1: entry \"a\": the rows stand on a hub, expected \"file_name\" of a JSON file, or --skip-incomplete"},
      {"llama-factory", "x.json", "g", "{\"a\":{\"file_name\":\"x.parquet\"}}",
       "%:1: entry \"a\": file_name is \"x.parquet\", expected a .json or .jsonl file, or --skip-incomplete"},
      {"llama-factory", "x.json", "g", "{\"a\":{\"file_name\":\"none.json\"}}",
       "%:1: entry \"a\": the file %/none.json is not there, expected it relative to the list's folder, or "
       "--skip-incomplete"},
      {"llama-factory", "x.json", "g", "{\"a\":{\"file_name\":\"x.json\",\"ranking\":true}}",
       "%:1: entry \"a\": preference data (ranking) has two answers a row, expected rows of one, or --skip-incomplete"},
      {"llama-factory", "x.json", "g", "{\"a\":{\"file_name\":\"x.json\",\"formatting\":\"chatml\"}}",
       "%:1: entry \"a\": formatting is \"chatml\", expected alpaca or sharegpt"},
      {"llama-factory", "x.json", "g", "{\"a\":{\"file_name\":\"x.json\",\"columns\":[]}}",
       "%:1: entry \"a\": columns is [], expected an object"},
      {"llama-factory", "x.json", "g", "{\"a\":{\"file_name\":\"x.json\",\"columns\":{\"prompt\":1}}}",
       "%:1: entry \"a\": prompt is 1, expected a string"},
      {"llama-factory", "x.json", "g", "{\"a\":{\"file_name\":\"x.json\",\"num_samples\":0}}",
       "%:1: entry \"a\": num_samples is 0, expected an integer from 1 to 4294967295"},
      {"nemo", "x.jsonl", "-", "{\"audio_filepath\":\"a\"}",
       "%:1: no duration, expected \"duration\" in seconds, --audio-seconds S, or --skip-incomplete"},
      {"nemo", "x.jsonl", "g", "{\"audio_filepath\":\"a\",\"duration\":0}",
       "%:1: duration is 0, expected seconds above 0, at most 10000000"},
      {"nemo", "x.jsonl", "g", "{\"audio_filepath\":\"a\",\"duration\":-1.5}",
       "%:1: duration is -1.5, expected seconds above 0, at most 10000000"},
      {"nemo", "x.jsonl", "g", "{\"audio_filepath\":\"a\",\"duration\":\"4\"}",
       "%:1: duration is \"4\", expected seconds above 0, at most 10000000"},
      {"nemo", "x.jsonl", "g", "{\"audio_filepath\":\"a\",\"duration\":1e8}",
       "%:1: duration is 100000000.0, expected seconds above 0, at most 10000000"},
      {"nemo", "x.jsonl", "g", "{\"audio_filepath\":\"a\",\"duration\":1e999}",
       "%:1: not JSON: Problem while parsing a number"},
      {"nemo", "x.jsonl", "g", "{\"audio_filepath\":\"a\",\"duration\":NaN}",
       "%:1: not JSON: The JSON document has an improper structure: missing or superfluous commas, braces, missing "
       "keys, etc."},
      {"nemo", "x.jsonl", "g", "{\"audio_filepath\":\"a\",\"duration\":1}\n{\"audio_filepath\":\"a\",\"duration\":1",
       "%:2: not JSON: The JSON document has an improper structure: missing or superfluous commas, braces, missing "
       "keys, etc."},
      {"nemo", "x.jsonl", "g", "{\"audio_filepath\":\"a\",\"duration\":1,\"text\":5}",
       "%:1: text is 5, expected a string"},
      {"nemo", "x.jsonl", "-", "{\"audio_filepath\":\"a\",\"duration\":1,\"text\":\"x\"}",
       "%:1: the text has no token counts, expected --tokens-per-word R (an estimate, such as 1.3; no tokenizer is "
       "built in)"},
      {"nemo", "x.jsonl", "g", "{\"conversations\":[{\"value\":\"x\"}]}", "%:1: no \"type\" in the record"},
      {"nemo", "x.jsonl", "g", "{\"conversations\":[{\"type\":\"image\",\"value\":\"x\"}]}",
       "%:1: type is \"image\", expected text or audio"},
      {"nemo", "x.jsonl", "-", "{\"conversations\":[{\"type\":\"audio\",\"value\":\"x\"}]}",
       "%:1: no duration, expected \"duration\" in seconds, --audio-seconds S, or --skip-incomplete"},
      {"lhotse", "x.json", "g", "[{\"id\":\"a\"}]",
       "%:1: record 1: no \"duration\" in the record, nor num_samples and sampling_rate"},
      {"lhotse", "x.json", "g", "[{\"id\":\"a\",\"num_samples\":5,\"sampling_rate\":0}]",
       "%:1: record 1: sampling_rate is 0, expected a number from 1.000000 to 1000000000.000000"},
      {"lhotse", "x.json", "g", "[{\"id\":\"a\",\"num_samples\":0,\"sampling_rate\":16000}]",
       "%:1: record 1: num_samples is 0, expected a number from 1.000000 to 1000000000000000.000000"},
      {"lhotse", "x.json", "g", "[{\"id\":\"a\",\"duration\":0}]",
       "%:1: record 1: duration is 0, expected seconds above 0, at most 10000000"},
      {"lhotse", "x.json", "g", "[{\"id\":\"a\",\"tracks\":[]}]",
       "%:1: record 1: duration is 0, expected seconds above 0, at most 10000000"},
      {"lhotse", "x.json", "g", "[{\"id\":\"a\",\"tracks\":[{}]}]", "%:1: record 1: no \"cut\" in the record"},
      {"lhotse", "x.json", "g", "[{\"id\":\"a\",\"tracks\":[{\"offset\":-1,\"cut\":{\"duration\":1}}]}]",
       "%:1: record 1: offset is -1, expected a number from 0.000000 to 10000000.000000"},
      {"lhotse", "x.json", "g", "[{\"id\":\"a\",\"duration\":1,\"supervisions\":[{\"text\":1}]}]",
       "%:1: record 1: text is 1, expected a string"},
      {"lhotse", "x.json", "-", "[{\"id\":\"a\",\"duration\":1,\"supervisions\":[{\"text\":\"x\"}]}]",
       "%:1: record 1: the text has no token counts, expected --tokens-per-word R (an estimate, such as 1.3; no "
       "tokenizer is built in)"},
      {"kaldi", "wav.scp", "g", "a x\n",
       "%: which Kaldi file this is cannot be told, expected a name that ends in segments, utt2dur, utt2num_frames or "
       "reco2dur, or a folder with one of them"},
      {"kaldi", "utt2dur", "g", "a\n", "%:1: 1 words, expected id and value"},
      {"kaldi", "utt2dur", "g", "a 1 2\n", "%:1: 3 words, expected id and value"},
      {"kaldi", "utt2dur", "g", "a 1\nb zero\n",
       "%:2: the duration is \"zero\", expected seconds above 0, at most 10000000"},
      {"kaldi", "utt2dur", "g", "a 0\n", "%:1: the duration is \"0\", expected seconds above 0, at most 10000000"},
      {"kaldi", "utt2dur", "g", "a 1e400\n",
       "%:1: the duration is \"1e400\", expected seconds above 0, at most 10000000"},
      {"kaldi", "utt2dur", "g", "a nan\n", "%:1: the duration is \"nan\", expected seconds above 0, at most 10000000"},
      {"kaldi", "utt2dur", "g", "\xff\xfe 1\n", "%:1: the id is not UTF-8"},
      {"kaldi", "utt2num_frames", "-", "a 5\n",
       "%:1: durations are in frames, expected --frame-shift SECONDS (Kaldi's own default is 0.01)"},
      {"kaldi", "utt2num_frames", "g", "a 0\n", "%:1: frames is \"0\", expected an integer from 1 to 4294967295"},
      {"kaldi", "utt2num_frames", "g", "a 5.5\n", "%:1: frames is \"5.5\", expected an integer from 1 to 4294967295"},
      {"kaldi", "utt2num_frames", "g", "a 4294967295\n",
       "%:1: the duration is 42949672.95, expected seconds above 0, at most 10000000"},
      {"kaldi", "segments", "g", "a r 0\n", "%:1: 3 words, expected id, recording, start, end"},
      {"kaldi", "segments", "g", "a r 0 1 2 3\n", "%:1: 6 words, expected id, recording, start, end"},
      {"kaldi", "segments", "g", "a r 5 5\n", "%:1: the segment goes from 5 to 5, expected an end after its start"},
      {"kaldi", "segments", "g", "a r -1 5\n", "%:1: start is \"-1\", expected a number from 0 to 10000000"},
      {"kaldi", "segments", "g", "a r 0 -1\n",
       "%:1: the segment has no end (-1), expected seconds, or --skip-incomplete"},
      {"azure", "x.csv", "g", "", "%: the file is empty, expected a header"},
      {"azure", "x.csv", "g", "a,b\n1,2\n", "%:1: expected a header with TIMESTAMP and ContextTokens"},
      {"azure", "x.csv", "g", "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.97,1,2\n",
       "%:2: 3 fields, expected 2, as in the first record"},
      {"azure", "x.csv", "g", "TIMESTAMP,ContextTokens\n2023-13-16 18:17:03,1\n",
       "%:2: TIMESTAMP is \"2023-13-16 18:17:03\", expected YYYY-MM-DD hh:mm:ss with up to 7 decimals"},
      {"azure", "x.csv", "g", "TIMESTAMP,ContextTokens\n2023-11-16 24:17:03,1\n",
       "%:2: TIMESTAMP is \"2023-11-16 24:17:03\", expected YYYY-MM-DD hh:mm:ss with up to 7 decimals"},
      {"azure", "x.csv", "g", "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.,1\n",
       "%:2: TIMESTAMP is \"2023-11-16 18:17:03.\", expected YYYY-MM-DD hh:mm:ss with up to 7 decimals"},
      {"azure", "x.csv", "g", "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03.12345678,1\n",
       "%:2: TIMESTAMP is \"2023-11-16 18:17:03.12345678\", expected YYYY-MM-DD hh:mm:ss with up to 7 decimals"},
      {"azure", "x.csv", "g", "TIMESTAMP,ContextTokens\nyesterday,1\n",
       "%:2: TIMESTAMP is \"yesterday\", expected YYYY-MM-DD hh:mm:ss with up to 7 decimals"},
      {"azure", "x.csv", "g", "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,-1\n",
       "%:2: ContextTokens is \"-1\", expected an integer from 0 to 1073741824"},
      {"azure", "x.csv", "g", "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,\n",
       "%:2: ContextTokens is \"\", expected an integer from 0 to 1073741824"},
      {"azure", "x.csv", "g", "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,1\n2023-11-16 18:17:02,1\n",
       "%:3: TIMESTAMP lies before that of the first row, expected rows in order of time"},
      {"azure", "x.csv", "-", "TIMESTAMP,NumImages,ContextTokens\n2023-11-16 18:17:03,2,100\n",
       "%:2: ContextTokens holds text and 2 images together, expected --tokens-per-image N and --encoder-ratio K, or "
       "--skip-incomplete"},
      {"azure", "x.csv", "g", "TIMESTAMP,NumImages,ContextTokens\n2023-11-16 18:17:03,2,100\n",
       "%:2: 2 images of 100 tokens are more than the 100 ContextTokens, expected a lower --tokens-per-image, or "
       "--skip-incomplete"},
      {"mooncake", "x.jsonl", "g", "{\"timestamp\":1,\"input_length\":-5}",
       "%:1: input_length is -5, expected an integer from 0 to 1073741824"},
      {"mooncake", "x.jsonl", "g", "{\"timestamp\":-1,\"input_length\":5}",
       "%:1: timestamp is -1, expected a number from 0.000000 to 1000000000000000.000000"},
      {"mooncake", "x.jsonl", "g", "{\"timestamp\":1}", "%:1: no \"input_length\" in the record"},
      {"mooncake", "x.jsonl", "g", "{\"timestamp\":1,\"input_length\":5,}",
       "%:1: not JSON: The JSON document has an improper structure: missing or superfluous commas, braces, missing "
       "keys, etc."},
      {"servegen", "x.csv", "g", "0,1,1,Gamma,1,1\n",
       "%: expected a name that ends in -trace.csv or -dataset.json, with the other beside it"},
      {"servegen", "c-trace.csv", "g", "0,1,1,Gamma,1,1\n",
       "%: expected two windows at least, their distance is a window's length"},
      {"servegen", "c-trace.csv", "g", "0,1,1,Gamma,1\n1,1,1,Gamma,1\n",
       "%:1: 5 fields, expected 6: start, rate, variation, law and its two parameters"},
      {"servegen", "c-trace.csv", "g", "0,1,1,Pareto,1,1\n1,0,0,,0,0\n",
       "%:1: the law is \"Pareto\", expected Gamma or Weibull"},
      {"servegen", "c-trace.csv", "g", "0,1,1,Gamma,0,1\n1,0,0,,0,0\n",
       "%:1: the law's shape is \"0\", expected a number from 0.01 to 10000"},
      {"servegen", "c-trace.csv", "g", "0,-1,1,Gamma,1,1\n1,0,0,,0,0\n",
       "%:1: the rate is \"-1\", expected a number from 0 to 1000000"},
      {"servegen", "c-trace.csv", "g", "5,1,1,Gamma,1,1\n5,0,0,,0,0\n",
       "%:2: the start does not ascend, expected windows in order of time"},
      {"servegen", "c-trace.csv", "g", "0,1e6,1,Gamma,1,1\n1000000000,0,0,,0,0\n",
       "%:1: more than 16777216 arrivals in the window"},
      {"servegen", "d-dataset.json", "g", "{\"x\":{}}",
       "%:1: window \"x\": the window is \"x\", expected a number from 0 to 1000000000000"},
      {"servegen", "d-dataset.json", "g", "{\"0\":{}}",
       "%:1: window \"0\": no \"text_tokens\" or \"input_tokens\" in the window"},
      {"servegen", "d-dataset.json", "g", "{\"0\":{\"text_tokens\":5}}",
       "%:1: window \"0\": text_tokens is 5, expected a string"},
      {"servegen", "d-dataset.json", "g", "{\"0\":{\"text_tokens\":\"{}\"}}",
       "%:1: window \"0\": text_tokens is \"{}\", expected {value: probability, …}"},
      {"servegen", "d-dataset.json", "g", "{\"0\":{\"text_tokens\":\"{1 0.5}\"}}",
       "%:1: window \"0\": text_tokens is \"{1 0.5}\", expected {value: probability, …}"},
      {"servegen", "d-dataset.json", "g", "{\"0\":{\"text_tokens\":\"{1: -0.5}\"}}",
       "%:1: window \"0\": text_tokens (probability) is \"-0.5\", expected a number from 0 to 1"},
      {"servegen", "d-dataset.json", "g", "{\"0\":{\"text_tokens\":\"{1: 0}\"}}",
       "%:1: window \"0\": text_tokens is \"{1: 0}\", expected {value: probability, …}"},
      {"servegen", "d-dataset.json", "g", "{\"0\":{\"text_tokens\":\"{x: 1}\"}}",
       "%:1: window \"0\": text_tokens is \"x\", expected an integer from 0 to 16777216"},
      {"csv", "x.csv", "g", "a,b\n1,2\n",
       "%: expected --columns FIELD=COLUMN,… with fields of id, task, text, words, width, height, images, audio, "
       "video, frames, t; the columns are: a, b"},
      {"csv", "x.csv", "text=c", "a,b\n1,2\n", "%:1: no column \"c\", there are: a, b"},
      {"csv", "x.csv", "size=a", "a,b\n1,2\n",
       "--columns size=a: expected FIELD=COLUMN with a field of id, task, text, words, width, height, images, audio, "
       "video, frames, t"},
      {"csv", "x.csv", "text", "a,b\n1,2\n",
       "--columns text: expected FIELD=COLUMN with a field of id, task, text, words, width, height, images, audio, "
       "video, frames, t"},
      {"csv", "x.csv", "text=a;text=b", "a,b\n1,2\n", "--columns names the field text twice"},
      {"csv", "x.csv", "text=a;words=b", "a,b\n1,2\n", "--columns: expected text (tokens) or words, not both"},
      {"csv", "x.csv", "width=a", "a,b\n1,2\n", "--columns: expected width and height together"},
      {"csv", "x.csv", "text=a/x", "a,b\n1,2\n",
       "--columns: the divisor is \"x\", expected a number from 1e-09 to 1000000000000"},
      {"csv", "x.csv", "text=a/0", "a,b\n1,2\n",
       "--columns: the divisor is \"0\", expected a number from 1e-09 to 1000000000000"},
      {"csv", "x.csv", "text=a", "", "%: the file is empty, expected a header"},
      {"csv", "x.csv", "text=a", "a,b\n1,2\n3\n", "%:3: 1 fields, expected 2, as in the first record"},
      {"csv", "x.csv", "text=a", "a,b\n1.5,2\n", "%:2: a is \"1.5\", expected an integer from 0 to 1073741824"},
      {"csv", "x.csv", "text=a", "a,b\n,2\n", "%:2: a is empty, expected a number, or --skip-incomplete"},
      {"csv", "x.csv", "audio=a/1000", "a,b\n0,2\n", "%:2: a is 0, expected seconds above 0, at most 10000000"},
      {"csv", "x.csv", "text=a", "a,b\n1,\"2\n", "%:2: a quote that is never closed"},
      {"csv", "x.csv", "text=a", "a,b\n1,\"2\"x\n", "%:2: text behind a closing quote, expected a comma"},
      {"csv", "x.csv", "text=a", "a,b\n1,2\"x\"\n",
       "%:2: a quote inside a field without quotes, expected \"…\" around it and \"\" inside"},
      {"csv", "x.csv", "t=a", "a,b\n-3,2\n", "%:2: a is \"-3\", expected a number from 0 to 1e+18"},
      {"csv", "x.csv", "t=a", "a,b\ninf,2\n", "%:2: a is \"inf\", expected a number from 0 to 1e+18"},
      {"csv", "x.csv", "id=a", "a,b\n\xff,2\n", "%:2: the id is not UTF-8"},
      {"csv", "x.csv", "images=a;noimage", "a,b\n2,2\n",
       "%:2: 2 images without sizes, expected --image-size WxH, or --skip-incomplete"},
      {"csv", "x.csv", "frames=a", "a,b\n99999999,2\n",
       "%:2: a is \"99999999\", expected an integer from 1 to 16777216"},
  };
  const Scratch scratch;
  (void)scratch.file("c-dataset.json", R"({"0":{"text_tokens":"{1: 1.0}"}})");
  (void)scratch.file("d-trace.csv", "0,1,1,Gamma,1,1\n1,0,0,,0,0\n");
  (void)scratch.file("x", "[]");
  for (const Bad& bad : all) {
    const std::string path = scratch.file(bad.file, bad.content);
    ImportOptions options = bad.options == "-" ? ImportOptions{} : generous();
    if (bad.options != "-" && bad.options != "g") {
      std::istringstream pairs(bad.options);
      for (std::string pair; std::getline(pairs, pair, ';');) {
        pair == "noimage" ? options.image_size.reset() : options.columns.push_back(pair);
      }
    }
    std::string message = bad.message;
    for (std::size_t at; (at = message.find('%')) != std::string::npos;) {
      const bool is_folder = message.substr(at + 1, 1) == "/";
      message.replace(at, is_folder ? 2 : 1, is_folder ? scratch.folder.string() + "/" : path);
    }
    CAPTURE(bad.format);
    CAPTURE(bad.content);
    CHECK(refusal(bad.format, path, options) == message);
  }
}

TEST_CASE("hostile bytes are refused by every format") {
  const Scratch scratch;
  const std::string deep(100000, '[');
  const std::string deep_objects = [] {
    std::string text;
    for (int i = 0; i < 20000; ++i) text += "{\"a\":";
    return text;
  }();
  const std::string packed = gzip("{\"audio_filepath\":\"a\",\"duration\":1}\n" + std::string(100000, ' '));
  const std::vector<std::string> all{"",
                                     std::string(1, '\0'),
                                     std::string(1000, '\0'),
                                     "[{\"a\":\"" + std::string(3, '\0') + "\"}]",
                                     deep,
                                     deep_objects,
                                     "[" + deep_objects,
                                     std::string(17U << 20U, 'x'),
                                     "[\"" + std::string(17U << 20U, 'x') + "\"]",
                                     "\"" + std::string(17U << 20U, ','),
                                     "[{\"id\":\"\xff\xfe\"}]",
                                     "\xc3\x28,\xff\n\xff,1\n",
                                     packed.substr(0, packed.size() / 2),
                                     std::string("\x1f\x8b\x08garbage"),
                                     std::string("\x28\xb5\x2f\xfdgarbage"),
                                     "[1e999999999]",
                                     "[{\"id\":123456789012345678901234567890}]"};
  for (const Importer* format : importers()) {
    const std::string_view name = format->name;
    const char* file = name == "kaldi"      ? "segments"
                       : name == "servegen" ? "h-trace.csv"
                       : name == "energon"  ? "index.sqlite"
                                            : "h";
    if (name == "servegen") (void)scratch.file("h-dataset.json", R"({"0":{"text_tokens":"{1: 1.0}"}})");
    for (std::size_t i = 0; i < all.size(); ++i) {
      CAPTURE(name);
      CAPTURE(i);
      const std::string path = scratch.file(file, all[i]);
      const std::string message = refusal(format->name, path, with_columns({"text=x"}));
      // An empty file of lines has no samples; the command refuses that.
      CHECK((message.starts_with(scratch.folder.string()) || (message == "accepted" && i == 0)));
      CHECK(message.size() < 1000);
      try {
        (void)recognise(path);
      } catch (const InvalidInput&) {
      }
    }
  }
}
