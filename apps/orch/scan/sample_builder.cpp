#include "sample_builder.hpp"

#include <cmath>
#include <utility>

#include "../printable.hpp"
#include "av_header.hpp"
#include "image_header.hpp"
#include "member_kind.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/base/hash.hpp"
#include "text_words.hpp"

namespace orch::scan {

namespace {

constexpr std::size_t most_units = std::size_t{1} << 20U;       // the trace format's limit
constexpr std::uint64_t most_tokens = std::uint64_t{1} << 30U;  // the trace format's limit
constexpr std::size_t most_listed = std::size_t{1} << 20U;      // about 200 MB of names
constexpr std::size_t most_keys = std::size_t{1} << 20U;        // about 50 MB
constexpr std::size_t most_extensions = 1000;                   // counted apart

}  // namespace

void SampleBuilder::start(std::string_view key) {
  if (key_ && *key_ == key) return;
  finish();
  key_ = key;
  const std::uint64_t hash = Fingerprint().add_bytes(key).value();
  if (keys_.size() < most_keys ? !keys_.insert(hash).second : keys_.contains(hash)) ++result_.returning_keys;
  sample_ = {};
  text_words_.reset();
  json_words_.reset();
  bad_ = false;
}

void SampleBuilder::add(std::string_view key, const std::string& name, Bytes& bytes) {
  start(key);
  const MemberKind kind = member_kind(name);
  if (kind == MemberKind::other) {
    const std::string end = apps::printable(extension(name));
    ++result_.ignored[result_.ignored.size() < most_extensions || result_.ignored.contains(end) ? end : "…"];
    return;
  }
  try {
    if (kind == MemberKind::text || kind == MemberKind::json) {
      add_text(name, bytes);
    } else {
      add_unit(name, bytes);
    }
  } catch (const BadMember& error) {
    corrupt(name, error.what());
  }
}

void SampleBuilder::add_corrupt(std::string_view key, const std::string& name, const std::string& error) {
  start(key);
  corrupt(name, error);
}

void SampleBuilder::break_off(const std::string& error) {
  bad_ = true;
  corrupt("", error);
}

void SampleBuilder::corrupt(const std::string& name, const std::string& error) {
  CorruptMember member{input_, apps::printable(name), error};
  if (settings_.strict) throw InvalidInput(member.text() + " (--strict)");
  bad_ = true;
  ++result_.corrupt_members;
  if (result_.corrupt.size() < most_listed) result_.corrupt.push_back(std::move(member));
}

void SampleBuilder::add_unit(const std::string& name, Bytes& bytes) {
  if (bytes.size() == 0) throw BadMember("is empty");
  if (sample_.images.size() + sample_.audio.size() + sample_.video.size() >= most_units) {
    throw BadMember("is one more than the 1048576 units that a sample can have");
  }
  const MemberKind kind = member_kind(name);
  if (kind == MemberKind::image) {
    sample_.images.push_back(read_image_header(bytes));
    return;
  }
  const AvHeader header = read_av_header(bytes);
  if (header.estimated) ++result_.estimated;
  // A sound track belongs to its video; a "video" without pictures is sound.
  if (kind == MemberKind::video && header.video) {
    sample_.video.push_back(*header.video);
  } else if (header.audio && header.audio->microseconds > 0) {
    sample_.audio.push_back(*header.audio);
  } else {
    throw BadMember("holds no sound of a known duration");
  }
}

void SampleBuilder::add_text(const std::string& name, Bytes& bytes) {
  if (bytes.size() > most_text_bytes) throw BadMember("is longer than 1 MiB, the most that is read of a text");
  const std::string text = read_head(bytes, most_text_bytes);
  if (text.size() < bytes.size()) throw BadMember("is cut short");
  const bool json = member_kind(name) == MemberKind::json;
  const std::optional<std::uint64_t> words = json ? count_json_words(text) : count_words(text);
  if (!words) return;
  if (!settings_.tokens_per_word) {
    const char* hint =
        "is text, and its tokens depend on a tokenizer: say how many a word has with --tokens-per-word R (English: "
        "about 1.3; 0 leaves text out)";
    throw InvalidInput(CorruptMember{input_, apps::printable(name), hint}.text());
  }
  std::optional<std::uint64_t>& sum = json ? json_words_ : text_words_;
  sum = sum.value_or(0) + *words;
}

void SampleBuilder::finish() {
  if (!key_) return;
  const std::uint64_t words = text_words_.value_or(json_words_.value_or(0));
  const double tokens = std::nearbyint(static_cast<double>(words) * settings_.tokens_per_word.value_or(0));
  if (tokens > static_cast<double>(most_tokens)) corrupt(*key_, "has more than 1073741824 text tokens");
  const std::string key = *std::exchange(key_, std::nullopt);
  if (bad_) {
    ++result_.left_out;
    return;
  }
  sample_.text = static_cast<std::uint32_t>(tokens);
  const bool units = !sample_.images.empty() || !sample_.audio.empty() || !sample_.video.empty();
  if (!units && sample_.text == 0) return;  // only metadata, or text that is left out
  sample_.id = apps::printable(key);
  sample_.task = settings_.task;
  ++result_.samples;
  result_.images += sample_.images.size();
  result_.audio += sample_.audio.size();
  result_.video += sample_.video.size();
  result_.text_tokens += sample_.text;
  write_(sample_);
}

}  // namespace orch::scan
