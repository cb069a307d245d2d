// libFuzzer, run once per format (named by the environment variable ORCH_FUZZ_FORMAT): any bytes are either read or
// refused with an error of ours; what is read is a trace that reads back as it was written.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "importer.hpp"
#include "orchmllm/io/trace_writer.hpp"

namespace {

namespace fs = std::filesystem;
using namespace orch;
using namespace orch::apps;

const std::string format = [] {
  const char* name = std::getenv("ORCH_FUZZ_FORMAT");
  return std::string(name == nullptr ? "csv" : name);
}();

/// Ends a run that draws more samples than are worth checking.
class Enough : public Error {
 public:
  Enough() : Error("enough", 1) {}
};

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

/// A folder in memory that holds the input, the files that it may name, and the trace.
fs::path make_folder() {
  const fs::path root = fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
  const fs::path folder = root / ("orchmllm-fuzz-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  write(folder / "rows.json",
        R"([{"conversations":[{"from":"gpt","value":"a b"}],"output":"c","vit_num":0,"token_num":3,"image_flag":0}])");
  write(folder / "text", "a x y\nb z\n");
  return folder;
}

/// Where a format looks at names, the first byte chooses.
std::string input_name(std::uint8_t first) {
  constexpr const char* kaldi[] = {"segments", "utt2dur", "utt2num_frames", "reco2dur"};
  if (format == "kaldi") return kaldi[first % 4];
  if (format == "servegen") return first == '{' ? "c-dataset.json" : "c-trace.csv";
  if (format == "energon") return first == 'S' ? "index.sqlite" : "split.yaml";
  return "input";
}

ImportOptions make_options() {
  ImportOptions options;
  options.tokens_per_word = 1.5;
  options.image_size = Image{640, 480};
  options.tokens_per_image = 100;
  options.encoder_ratio = 4;
  options.audio_seconds = 2.5;
  options.video_seconds = 8;
  options.frame_shift = 0.01;
  options.skip_incomplete = true;
  if (format == "csv") options.columns = {"id=a", "text=b", "audio=c/16000", "t=d"};
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fs::path folder = make_folder();
  static const ImportOptions options = make_options();
  if (format == "servegen") {
    write(folder / "c-dataset.json",
          R"({"0":{"text_tokens":"{1: 1.0}","image_count":"{1: 1}","image_tokens":"{9: 1}"}})");
    write(folder / "c-trace.csv", "0,5,1,Gamma,1,1\n10,0,0,,0,0\n");
  }
  const fs::path input = folder / input_name(size == 0 ? 0 : data[0]);
  write(input, {reinterpret_cast<const char*>(data), size});
  std::string written;
  try {
    (void)recognise(input.string());
  } catch (const Error&) {
  }
  try {
    Import import(options, [&](const Sample& sample) {
      io::append_sample(written, sample);
      if (written.size() > (std::size_t{1} << 20U)) throw Enough();
    });
    const bool whole_folder = format == "energon" || (format == "kaldi" && size % 2 == 0);
    importer(format).read(whole_folder ? folder.string() : input.string(), import);
  } catch (const Error&) {
  }
  fs::remove(input);
  write(folder / "trace", written);
  std::string again;
  (void)io::read_trace((folder / "trace").string(), [&](const Sample& sample) { io::append_sample(again, sample); });
  if (again != written) std::abort();
  return 0;
}
