#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "instances.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/io/atomic_file.hpp"
#include "orchmllm/io/trace.hpp"
#include "property.hpp"

using namespace orch;
namespace fs = std::filesystem;

namespace {

/// A folder of its own for every test, removed at its end.
struct Scratch {
  fs::path folder = fs::temp_directory_path() / ("orchmllm-test-io-" + std::to_string(::getpid()));
  Scratch() { fs::create_directories(folder); }
  ~Scratch() { fs::remove_all(folder); }
  [[nodiscard]] std::string file(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return (folder / name).string();
  }
};

std::string gzip(const std::string& text, const fs::path& folder) {
  const std::string path = (folder / "packed.gz").string();
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

std::vector<Sample> read_all(const std::string& path) {
  std::vector<Sample> samples;
  (void)io::read_trace(path, [&](const Sample& sample) { samples.push_back(sample); });
  return samples;
}

const std::string good =
    "{\"orchmllm_trace\":1,\"name\":\"n\",\"source\":\"s\",\"license\":\"l\",\"kind\":\"training\",\"samples\":4}\n"
    "{\"id\":\"s0\",\"task\":\"caption\",\"text\":37,\"images\":[[1024,768]]}\n"
    "{\"id\":\"s1\",\"task\":\"spoken-qa\",\"text\":212,\"audio\":[12.4]}\n"
    "{\"id\":\"s2\",\"task\":\"video-qa\",\"text\":90,\"video\":[{\"frames\":64,\"size\":[448,448]},{\"seconds\":2.5}]}"
    "\r\n"
    "\n"
    "{\"id\":\"s3\",\"task\":\"vqa\",\"text\":811,\"tokens\":{\"vision\":[[5120,1280],[1024,null]]},\"t\":1.5,"
    "\"extra\":[1]}";

}  // namespace

TEST_CASE("every kind of sample is read") {
  const Scratch scratch;
  std::vector<Sample> samples;
  const io::TraceInfo info =
      io::read_trace(scratch.file("t.jsonl", good), [&](const Sample& sample) { samples.push_back(sample); });
  CHECK(info.name == "n");
  CHECK(info.kind == "training");
  CHECK(info.samples == 4);
  CHECK(info.samples_stated == 4);
  CHECK(info.unknown_keys == std::map<std::string, std::uint64_t>{{"extra", 1}});
  REQUIRE(samples.size() == 4);
  CHECK(samples[0].images[0].width == 1024);
  CHECK(samples[1].audio[0].microseconds == 12'400'000);
  CHECK(samples[2].video[0].frames == 64);
  CHECK(samples[2].video[1].microseconds == 2'500'000);
  CHECK(samples[3].tokens[0].phase == "vision");
  CHECK(samples[3].tokens[0].units[0].llm_length == 1280);
  CHECK(!samples[3].tokens[0].units[1].llm_length.has_value());
  CHECK(samples[3].arrival_seconds == 1.5);
}

TEST_CASE("plain, gzip, several gzip members and zstd hold the same trace") {
  const Scratch scratch;
  const auto hash = [](const std::string& path) { return io::read_trace(path, [](const Sample&) {}).hash; };
  const std::uint64_t plain = hash(scratch.file("a.jsonl", good));
  CHECK(hash(scratch.file("a.jsonl.gz", gzip(good, scratch.folder))) == plain);
  const std::size_t half = good.find("{\"id\":\"s1\"");
  CHECK(hash(scratch.file("b.jsonl.gz", gzip(good.substr(0, half), scratch.folder) +
                                            gzip(good.substr(half), scratch.folder))) == plain);
  CHECK(hash(scratch.file("a.jsonl.zst", zstd(good))) == plain);
  CHECK(hash(scratch.file("b.jsonl.zst", zstd(good.substr(0, half)) + zstd(good.substr(half)))) == plain);
  const std::string skip("\x5e\x2a\x4d\x18\x03\x00\x00\x00xyz", 11);  // a frame without data: magic, size, anything
  CHECK(hash(scratch.file("c.jsonl.zst",
                          skip + zstd(good.substr(0, half)) + skip + skip + zstd(good.substr(half)) + skip)) == plain);
}

TEST_CASE("a zstd frame that unpacks to more than is read at once is read to its end") {
  const Scratch scratch;
  for (const std::size_t size : {65'535U, 65'536U, 65'537U, 131'072U, 200'000U, 1'000'000U}) {
    const std::string line = "{\"text\":1,\"id\":\"" + std::string(size, 'x') + "\"}\n";
    const std::string path = scratch.file("large.jsonl.zst", zstd(line + line));
    CHECK(io::read_trace(path, [&](const Sample& sample) { CHECK(sample.id.size() == size); }).samples == 2);
    const std::string packed = zstd(line + line);
    const std::string cut = scratch.file("cut.jsonl.zst", packed.substr(0, packed.size() - 2));
    CHECK_THROWS_WITH_AS((void)read_all(cut), doctest::Contains("cut short"), InvalidInput);
  }
}

TEST_CASE("metadata stands once, and says how many samples there are") {
  const Scratch scratch;
  const std::string metadata = "{\"orchmllm_trace\":1,\"name\":\"n\",\"samples\":0}\n";
  const std::string sample = "{\"text\":1}\n";
  const auto read = [](const std::string& path) { return io::read_trace(path, [](const Sample&) {}); };
  CHECK(read(scratch.file("a.jsonl", metadata + sample)).samples_stated == 0);
  CHECK(!read(scratch.file("b.jsonl", sample)).samples_stated.has_value());
  for (const std::string& text : {metadata + metadata, metadata + sample + metadata, sample + metadata}) {
    const auto line = std::to_string(std::count(text.begin(), text.end(), '\n'));
    CHECK_THROWS_WITH_AS((void)read(scratch.file("c.jsonl", text)),
                         doctest::Contains(("c.jsonl:" + line + ": a line of metadata").c_str()), InvalidInput);
  }
}

TEST_CASE("a bad line is refused with file and line") {
  const Scratch scratch;
  const std::vector<std::pair<std::string, std::string>> lines{
      {"{\"id\":\"x\",\"text\":1", "not JSON"},
      {"{\"text\":1}}", "not JSON"},
      {"[1,2]", "expected an object"},
      {"17", "expected an object"},
      {"{\"text\":-1}", "text is -1"},
      {"{\"text\":1.5}", "text is 1.5"},
      {"{\"text\":\"7\"}", "text is \"7\""},
      {"{\"text\":null}", "text is null"},
      {"{\"text\":1e30}", "text is"},
      {"{\"text\":1000000000000000000000000000000}", "not JSON"},
      {"{\"text\":NaN}", "not JSON"},
      {"{\"text\":4294967296}", "text is 4294967296"},
      {"{\"text\":1,\"text\":2}", "stands twice"},
      {"{\"id\":7}", "id is 7"},
      {"{\"task\":[]}", "task is []"},
      {"{\"images\":[[0,5]]}", "image width is 0"},
      {"{\"images\":[[5,-5]]}", "image height is -5"},
      {"{\"images\":[[5]]}", "expected [width, height]"},
      {"{\"images\":[5]}", "image is 5"},
      {"{\"images\":{}}", "images is {}"},
      {"{\"images\":[[5,5,5]]}", "expected [width, height]"},
      {"{\"images\":[[1e3,5]]}", "image width is"},
      {"{\"audio\":[-1.0]}", "audio is -1"},
      {"{\"audio\":[0]}", "audio is 0"},
      {"{\"audio\":[1e300]}", "audio is"},
      {"{\"audio\":[\"3\"]}", "audio is \"3\""},
      {"{\"audio\":3}", "audio is 3"},
      {"{\"audio\":[Infinity]}", "not JSON"},
      {"{\"video\":[{}]}", "frames or seconds"},
      {"{\"video\":[{\"frames\":0}]}", "video frames is 0"},
      {"{\"video\":[{\"length\":3}]}", "expected frames, size or seconds"},
      {"{\"video\":[3]}", "video is 3"},
      {"{\"tokens\":[]}", "tokens is []"},
      {"{\"tokens\":{\"vision\":[5]}}", "tokens of vision is 5"},
      {"{\"tokens\":{\"vision\":[[5]]}}", "expected [encoder length, LLM length or null]"},
      {"{\"tokens\":{\"vision\":[[null,5]]}}", "tokens of vision (encoder) is null"},
      {"{\"tokens\":{\"vision\":[[5,-1]]}}", "tokens of vision (LLM) is -1"},
      {"{\"t\":-3}", "t is -3"},
      {"{\"t\":\"now\"}", "t is \"now\""},
      {"\xff\xfe", "not JSON"},
      {"{\"id\":\"\xff\"}", "not JSON"},
  };
  for (const auto& bad : lines) {
    const std::string& line = bad.first;  // not a structured binding: CAPTURE's lambda may not hold one in C++20
    const std::string& message = bad.second;
    CAPTURE(line);
    const std::string path = scratch.file("bad.jsonl", good + "\n" + line + "\n" + "{\"id\":\"after\"}\n");
    const std::string expected = path + ":7: ";
    CHECK_THROWS_WITH_AS((void)read_all(path), doctest::Contains(expected.c_str()), InvalidInput);
    CHECK_THROWS_WITH_AS((void)read_all(path), doctest::Contains(message.c_str()), InvalidInput);
  }
}

TEST_CASE("order and supervised tokens are read") {
  const Scratch scratch;
  const std::vector<Sample> samples = read_all(scratch.file(
      "order.jsonl",
      "{\"id\":\"s\",\"text\":42,\"images\":[[640,480]],\"audio\":[3.0],\"order\":[12,\"image\",30,\"audio\"]}\n"
      "{\"order\":[\"vision\",5,\"audio\",0,\"vision\"],\"supervised\":2,\"tokens\":{\"vision\":[[4,1],[8,2]]},"
      "\"images\":[[5,5]],\"audio\":[1.5],\"text\":5}\n"
      "{\"text\":7,\"supervised\":7}\n"
      "{\"text\":0,\"order\":[],\"supervised\":0}\n"
      "{\"text\":1,\"audio\":[1],\"tokens\":{\"audio\":[]},\"order\":[1]}\n"));
  REQUIRE(samples.size() == 5);
  const auto shown = [](const Sample& sample) {
    std::string line;
    for (const Segment& segment : sample.order)
      line += (line.empty() ? "" : " ") + (segment.kind.empty() ? std::to_string(segment.text) : segment.kind);
    return line;
  };
  CHECK(shown(samples[0]) == "12 image 30 audio");
  CHECK(!samples[0].supervised.has_value());
  CHECK(shown(samples[1]) == "vision 5 audio 0 vision");
  CHECK(samples[1].supervised == 2U);
  CHECK(samples[2].order.empty());
  CHECK(samples[2].supervised == 7U);
  CHECK(samples[3].order.empty());
  CHECK(samples[3].supervised == 0U);
  CHECK(shown(samples[4]) == "1");
}

TEST_CASE("an order that does not hold all of the sample is refused with file and line") {
  const Scratch scratch;
  const std::string sample = R"({"text":42,"images":[[640,480],[5,5]],"video":[{"seconds":2}],"audio":[3],)";
  const std::string counted = R"({"text":4,"images":[[640,480]],"audio":[3],"tokens":{"vision":[[8,2],[8,2]]},)";
  std::string phases = R"({"text":0,"tokens":{)";
  for (int i = 0; i < 65; ++i) phases += (i == 0 ? "\"p" : ",\"p") + std::to_string(i) + "\":[]";
  const std::vector<std::pair<std::string, std::string>> lines{
      {sample + R"("order":[42,"image","video","audio"]})",
       R"(units of kind "image" in order: 1, expected 2, every unit of the sample once)"},
      {sample + R"("order":[42,"image","image","image","video","audio"]})",
       R"(units of kind "image" in order: 3, expected 2, every unit of the sample once)"},
      {sample + R"("order":[42,"image","image","audio"]})",
       R"(units of kind "video" in order: 0, expected 1, every unit of the sample once)"},
      {sample + R"("order":[]})", R"(units of kind "image" in order: 0, expected 2, every unit of the sample once)"},
      {sample + R"("order":[40,"image",1,"image","video","audio"]})",
       "order holds 41 text tokens, expected 42, the sample's text"},
      {sample + R"("order":[42,"image","image","video","audio",1]})",
       "order holds 43 text tokens, expected 42, the sample's text"},
      {sample + R"("order":["image","image","video","audio"]})",
       "order holds 0 text tokens, expected 42, the sample's text"},
      {sample + R"("order":[42,"image","picture","video","audio"]})",
       R"(order names "picture", expected image, video, audio or a phase of tokens)"},
      {sample + R"("order":[42,"vision"]})",
       R"(order names "vision", expected image, video, audio or a phase of tokens)"},
      {sample + R"("order":[42,"image","image","video","audio"],"order":[]})", R"(the key "order" stands twice)"},
      {sample + R"("order":[-1]})", "a text run in order is -1, expected an integer from 0 to 1073741824"},
      {sample + R"("order":[1.5]})", "a text run in order is 1.5, expected an integer from 0 to 1073741824"},
      {sample + R"("order":[null]})", "order holds null, expected a number of text tokens or the kind of a unit"},
      {sample + R"("order":[[42]]})", "order holds [42], expected a number of text tokens or the kind of a unit"},
      {sample + R"("order":[""]})", R"(order holds "", expected a number of text tokens or the kind of a unit)"},
      {sample + R"("order":{"text":42}})", R"(order is {"text":42}, expected a list)"},
      {counted + R"("order":[4,"vision","audio"]})",
       R"(units of kind "vision" in order: 1, expected 2, every unit of the sample once)"},
      {R"({"text":1,"images":[[5,5],[5,5]],"tokens":{"vision":[]},"order":[1,"image"]})",
       R"(units of kind "image" in order: 1, expected 2, every unit of the sample once)"},
      {R"({"audio":[1,2],"tokens":{"audio":[[4,2]]},"order":["audio","audio"]})",
       R"(units of kind "audio" in order: 2, expected 1, every unit of the sample once)"},
      {R"({"text":9,"supervised":10})", "supervised is 10, expected at most 9, the sample's text"},
      {R"({"supervised":1})", "supervised is 1, expected at most 0, the sample's text"},
      {R"({"text":9,"supervised":-1})", "supervised is -1, expected an integer from 0 to 1073741824"},
      {R"({"text":9,"supervised":null})", "supervised is null, expected an integer from 0 to 1073741824"},
      {R"({"text":9,"supervised":1,"supervised":1})", R"(the key "supervised" stands twice)"},
      {R"({"tokens":{"vision":[[4,1]],"audio":[],"vision":[[8,2]]}})", R"(the phase "vision" stands twice in tokens)"},
      {phases + "}}", "tokens has more than 64 phases"},
  };
  for (const auto& bad : lines) {
    const std::string& line = bad.first;
    CAPTURE(line);
    const std::string path = scratch.file("bad.jsonl", good + "\n" + line + "\n");
    const std::string expected = path + ":7: " + bad.second;
    CHECK_THROWS_WITH_AS((void)read_all(path), expected.c_str(), InvalidInput);
  }
  // Where counts may replace images or clips, a model decides whether they are named.
  CHECK(read_all(scratch.file("a.jsonl", counted + R"("order":[4,"vision","vision","audio"]})")).size() == 1);
  CHECK(read_all(scratch.file("b.jsonl", counted + R"("order":[4,"vision","image","vision"]})")).size() == 1);
}

TEST_CASE("bad metadata is refused") {
  const Scratch scratch;
  for (const std::string line : {"{\"orchmllm_trace\":2}", "{\"orchmllm_trace\":1,\"kind\":\"other\"}",
                                 "{\"orchmllm_trace\":1,\"samples\":-1}", "{\"orchmllm_trace\":1,\"name\":3}"}) {
    CHECK_THROWS_WITH_AS((void)read_all(scratch.file("m.jsonl", line + "\n")), doctest::Contains("m.jsonl:1: "),
                         InvalidInput);
  }
}

TEST_CASE("files that are cut short, corrupt, absent, empty or have endless lines") {
  const Scratch scratch;
  std::string many = good + "\n";
  for (int i = 0; i < 2000; ++i)
    many += "{\"id\":\"m" + std::to_string(i * 7919) + "\",\"text\":" + std::to_string(i * i % 977) + "}\n";
  const std::string packed = gzip(many, scratch.folder);
  const std::string frames = zstd(many);
  const auto refused = [&](const std::string& name, const std::string& bytes, const char* message) {
    const std::string path = scratch.file(name, bytes);
    CHECK_THROWS_WITH_AS((void)read_all(path), doctest::Contains(message), InvalidInput);
  };
  refused("cut.gz", packed.substr(0, packed.size() / 2), "cut short");
  refused("tail.gz", packed.substr(0, packed.size() - 4), "cut short");
  refused("cut.zst", frames.substr(0, frames.size() / 2), "cut short");
  std::string broken = packed;
  broken[packed.size() / 2] = static_cast<char>(broken[packed.size() / 2] ^ 0x55);
  CHECK_THROWS_AS((void)read_all(scratch.file("broken.gz", broken)), InvalidInput);
  refused("long.jsonl", good + "\n{\"id\":\"" + std::string(100'000'000, 'x') + "\"}\n",
          "long.jsonl:7: the line is longer than");
  CHECK_THROWS_AS((void)read_all((scratch.folder / "absent.jsonl").string()), InvalidInput);
  CHECK_THROWS_AS((void)read_all(scratch.folder.string()), InvalidInput);
  CHECK(read_all(scratch.file("empty.jsonl", "")).empty());
  CHECK(read_all(scratch.file("blank.jsonl", "\n  \n\r\n")).empty());
}

TEST_CASE("lines of any length and number arrive whole") {
  test::check_property("line reader returns what was written", [] {
    const Scratch scratch;
    std::string bytes;
    std::vector<std::string> lines;
    const auto count = *rc::gen::inRange(0, 6);
    for (int i = 0; i < count; ++i) {
      lines.push_back(std::string(*rc::gen::element<std::size_t>(0, 1, 5, 1000, 1'048'575, 1'048'576, 3'000'001), 'a'));
      bytes += lines.back() + "\n";
    }
    const bool open_end = *rc::gen::arbitrary<bool>() && count > 0 && !lines.back().empty();
    if (open_end) bytes.pop_back();
    io::LineReader reader(scratch.file("lines", bytes));
    for (const std::string& line : lines) {
      const auto read = reader.next();
      RC_ASSERT(read.has_value());
      RC_ASSERT(*read == line);
    }
    RC_ASSERT(!reader.next().has_value());
  });
}

TEST_CASE("an output file is whole or absent") {
  const Scratch scratch;
  const std::string path = (scratch.folder / "out.json").string();
  {
    io::AtomicFile file(path);
    file.write("half");
  }
  CHECK(fs::is_empty(scratch.folder));
  {
    io::AtomicFile file(path);
    file.write("whole");
    file.commit();
  }
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str() == "whole");
  CHECK_THROWS_AS(io::AtomicFile((scratch.folder / "no" / "such" / "folder.json").string()), InvalidInput);
}

TEST_CASE("shared traces are read whole") {
  const auto shared = test::shared_folder();
  if (!shared) return;
  int files = 0;
  for (const auto& entry : fs::directory_iterator(*shared / "traces")) {
    if (entry.path().extension() != ".gz") continue;
    ++files;
    const io::TraceInfo info = io::read_trace(entry.path().string(), [](const Sample&) {});
    CHECK(info.samples == info.samples_stated);
    CHECK(info.unknown_keys.empty());
  }
  CHECK(files >= 8);
}

namespace {

/// What a reader makes of a trace of one line: every number of the sample, or the error.
std::string outcome(const std::string& line) {
  const std::string path = "test_io_plain.tmp.jsonl";
  std::ofstream(path) << line << '\n';
  std::ostringstream out;
  out.precision(17);
  try {
    (void)io::read_trace(path, [&](const Sample& s) {
      out << s.id << '|' << s.task << '|' << s.text << '|' << (s.supervised ? *s.supervised + 1.0 : 0) << '|'
          << s.arrival_seconds.value_or(-1);
      for (const Image& image : s.images) out << "|i" << image.width << 'x' << image.height;
      for (const AudioClip& clip : s.audio) out << "|a" << clip.microseconds;
      for (const VideoClip& clip : s.video) {
        out << "|v" << clip.frames << ',' << clip.microseconds << ',' << clip.size.width << 'x' << clip.size.height;
      }
      for (const CountedUnits& counted : s.tokens) {
        out << '|' << counted.phase;
        for (const CountedUnit& unit : counted.units) {
          out << ' ' << unit.encoder_length << '>' << (unit.llm_length ? *unit.llm_length + 1.0 : 0);
        }
      }
      for (const Segment& segment : s.order) out << "|o" << segment.text << segment.kind;
    });
  } catch (const InvalidInput& error) {
    out << error.what();
  }
  std::remove(path.c_str());
  return out.str();
}

}  // namespace

TEST_CASE("plain lines and damaged ones give what the general reader gives") {
  const std::vector<std::string> lines{
      R"({"id":"s0","task":"caption","text":37,"images":[[1024,768]]})",
      R"({"id": "s1", "task": "spoken-qa", "text": 212, "audio": [12.4, 0.001, 7, 123456.123456]})",
      R"({"id":"s2","task":"video-qa","text":90,"video":[{"frames":64,"size":[448,448]},{"seconds":0.1}]})",
      R"({"id":"s3","text":811,"tokens":{"vision":[[5120,1280],[1024,null]],"audio":[]},"t":17.25})",
      R"({"id":"s5","text":42,"images":[[640,480]],"audio":[3.0],"order":[12,"image",30,"audio"],"supervised":30})",
      R"({"text":0,"images":[],"audio":[0.0000004],"order":["audio"]})"};
  const std::string bytes = "\"{}[]:,.0123456789eE+-nulltrue \\\x7f\xc3\xa9xtimage";
  Random random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string line = lines[random.below(lines.size())];
    const std::uint64_t damages = i < 100 ? 0 : 1 + random.below(2);
    for (std::uint64_t k = 0; k < damages; ++k) {
      const std::uint64_t at = random.below(line.size());
      const std::uint64_t way = random.below(3);
      if (way == 0) line.erase(at, 1 + random.below(3));
      if (way == 1) line.insert(at, 1, bytes[random.below(bytes.size())]);
      if (way == 2) line[at] = bytes[random.below(bytes.size())];
      if (line.empty()) line = "1";
    }
    if (line.front() != '{') continue;
    CAPTURE(line);
    CHECK(outcome(line) == outcome("\t" + line));  // a tab sends a line the general way
  }
}
