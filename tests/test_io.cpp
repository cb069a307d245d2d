#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "instances.hpp"
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
