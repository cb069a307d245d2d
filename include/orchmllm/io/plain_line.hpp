// The fast way to read a line of a trace: the form in which programs write it, read in one pass without a JSON tree.
//
// Plain means: objects and lists of known keys, strings of printable ASCII without escapes, decimal numbers of at most
// 15 digits without exponent, spaces as the only white space. A plain line within all limits gives the sample that the
// general reader gives, to the last bit (mantissa / 10^k with both exact in a double is rounded once). Anything else,
// also every error, is refused and left to the general reader, which knows what to say. Complexity: O(bytes), no
// allocation once lists have grown.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "orchmllm/io/trace_limits.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch::io::detail {

/// Makes a sample empty; its lists keep their memory.
inline void clear_sample(Sample& sample) {
  sample.id.clear();
  sample.task.clear();
  sample.text = 0;
  sample.supervised.reset();
  sample.images.clear();
  sample.audio.clear();
  sample.video.clear();
  sample.tokens.clear();
  sample.order.clear();
  sample.arrival_seconds.reset();
}

/// The same; lists of counted units keep their memory in `spare`.
inline void clear_sample(Sample& sample, std::vector<CountedUnits>& spare) {
  for (CountedUnits& counted : sample.tokens) {
    if (spare.size() < max_phases) spare.push_back(std::move(counted));
  }
  clear_sample(sample);
}

class PlainLine {
 public:
  PlainLine(std::string_view line, std::vector<CountedUnits>& spare)
      : at_(line.data()), end_(line.data() + line.size()), spare_(spare) {}

  /// Fills an empty sample; false if the line is not plain (the sample then holds anything). `has_order`: the line
  /// gives an order, which the caller has to check.
  [[nodiscard]] bool read(Sample& sample, bool& has_order) {
    unsigned seen = 0;
    const bool plain = object([&](std::string_view key) { return read_key(key, sample, seen); });
    has_order = (seen & order_bit) != 0;
    return plain && at_ == end_ && sample.supervised.value_or(0) <= sample.text;
  }

 private:
  static constexpr unsigned order_bit = 512;

  /// A comparison of constant length, which compilers do without a call.
  template <std::size_t Size>
  [[nodiscard]] static bool is(std::string_view key, const char (&name)[Size]) {
    return key.size() == Size - 1 && std::memcmp(key.data(), name, Size - 1) == 0;
  }

  [[nodiscard]] bool read_key(std::string_view key, Sample& sample, unsigned& seen) {
    const auto once = [&](unsigned bit) { return (std::exchange(seen, seen | bit) & bit) == 0; };
    if (is(key, "id")) return once(1) && text(sample.id);
    if (is(key, "task")) return once(2) && text(sample.task);
    if (is(key, "text")) return once(4) && integer(sample.text, 0, max_tokens);
    if (is(key, "images")) return once(8) && list([&] { return size(sample.images.emplace_back()); });
    if (is(key, "audio"))
      return once(16) && list([&] { return microseconds(sample.audio.emplace_back().microseconds); });
    if (is(key, "video")) return once(32) && list([&] { return clip(sample.video.emplace_back()); });
    if (is(key, "tokens")) return once(64) && tokens(sample.tokens);
    if (is(key, "t")) return once(128) && number(sample.arrival_seconds.emplace()) && *sample.arrival_seconds <= 1e12;
    if (is(key, "supervised")) return once(256) && integer(sample.supervised.emplace(), 0, max_tokens);
    if (is(key, "order")) return once(order_bit) && list([&] { return segment(sample.order.emplace_back()); });
    return false;
  }

  [[nodiscard]] char peek() {
    while (at_ < end_) {
      if (*at_ != ' ') return *at_;
      ++at_;
    }
    return '\0';
  }
  [[nodiscard]] bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }

  /// `entry` for every entry between brackets.
  template <class Entry>
  [[nodiscard]] bool sequence(char open, char close, const Entry& entry) {
    if (!take(open)) return false;
    if (take(close)) return true;
    for (std::size_t entries = 0; entries < max_units; ++entries) {
      if (!entry()) return false;
      if (take(close)) return true;
      if (!take(',')) return false;
    }
    return false;
  }
  template <class Entry>
  [[nodiscard]] bool list(const Entry& entry) {
    return sequence('[', ']', entry);
  }
  template <class Member>
  [[nodiscard]] bool object(const Member& member) {
    return sequence('{', '}', [&] {
      std::string_view key;
      return quoted(key) && take(':') && member(key);
    });
  }

  [[nodiscard]] bool quoted(std::string_view& value) {
    if (!take('"')) return false;
    const char* begin = at_;
    const char* at = at_;
    for (; at < end_ && *at != '"'; ++at) {
      const auto byte = static_cast<unsigned char>(*at);
      if (byte < 0x20 || byte >= 0x80 || byte == '\\') return false;
    }
    if (at == end_) return false;
    value = std::string_view(begin, static_cast<std::size_t>(at - begin));
    at_ = at + 1;
    return true;
  }
  [[nodiscard]] bool text(std::string& value) {
    std::string_view view;
    if (!quoted(view)) return false;
    value.assign(view);
    return true;
  }

  /// Digits without a leading zero, at most `most` of them; appended to `value`.
  [[nodiscard]] int digits(std::uint64_t& value, int most) {
    const char* at = at_;
    std::uint64_t number = value;
    for (; at < end_ && *at >= '0' && *at <= '9'; ++at) {
      if (at - at_ == most) return -1;
      number = 10 * number + static_cast<std::uint64_t>(*at - '0');
    }
    value = number;
    return static_cast<int>(at - std::exchange(at_, at));
  }
  [[nodiscard]] bool whole(std::uint64_t& value) {
    const bool zero = peek() == '0';
    const int count = digits(value, 15);
    return count > 0 && (count == 1 || !zero);
  }
  [[nodiscard]] bool number_ends() const { return at_ == end_ || (*at_ != '.' && *at_ != 'e' && *at_ != 'E'); }

  [[nodiscard]] bool integer(std::uint32_t& value, std::uint64_t low, std::uint64_t high) {
    std::uint64_t read = 0;
    if (!whole(read) || !number_ends() || read < low || read > high) return false;
    value = static_cast<std::uint32_t>(read);
    return true;
  }

  [[nodiscard]] bool number(double& value) {
    static constexpr std::array<double, 16> power{1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                  1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    std::uint64_t mantissa = 0;
    int places = 0;
    const char* begin = at_;
    if (!whole(mantissa)) return false;
    if (at_ < end_ && *at_ == '.') {
      ++at_;
      places = digits(mantissa, 15);
      if (places <= 0) return false;
    }
    if (!number_ends() || at_ - begin > 16) return false;
    value = static_cast<double>(mantissa) / power[static_cast<std::size_t>(places)];
    return true;
  }
  [[nodiscard]] bool microseconds(std::uint64_t& value) {
    double seconds = 0;
    if (!number(seconds) || !(seconds > 0) || !(seconds <= max_seconds)) return false;
    value = static_cast<std::uint64_t>(std::llround(seconds * 1e6));
    value += value == 0 ? 1 : 0;
    return true;
  }

  [[nodiscard]] bool size(Image& image) {
    return take('[') && integer(image.width, 1, max_pixels_a_side) && take(',') &&
           integer(image.height, 1, max_pixels_a_side) && take(']');
  }

  [[nodiscard]] bool clip(VideoClip& clip) {
    const bool plain = object([&](std::string_view key) {
      if (is(key, "frames")) return integer(clip.frames, 1, max_frames);
      if (is(key, "seconds")) return microseconds(clip.microseconds);
      return is(key, "size") && size(clip.size);
    });
    return plain && (clip.frames > 0 || clip.microseconds > 0);
  }

  [[nodiscard]] bool tokens(std::vector<CountedUnits>& tokens) {
    return object([&](std::string_view phase) {
      for (const CountedUnits& earlier : tokens) {
        if (earlier.phase == phase) return false;
      }
      if (tokens.size() == max_phases) return false;
      if (spare_.empty()) spare_.emplace_back();
      CountedUnits& counted = tokens.emplace_back(std::move(spare_.back()));
      spare_.pop_back();
      counted.phase.assign(phase);
      counted.units.clear();
      return list([&] { return counted_unit(counted.units.emplace_back()); });
    });
  }
  [[nodiscard]] bool counted_unit(CountedUnit& unit) {
    if (!take('[') || !integer(unit.encoder_length, 0, max_tokens) || !take(',')) return false;
    if (peek() != 'n') return integer(unit.llm_length.emplace(), 0, max_tokens) && take(']');
    if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with("null")) return false;
    at_ += 4;
    return take(']');
  }

  [[nodiscard]] bool segment(Segment& segment) {
    if (peek() != '"') return integer(segment.text, 0, max_tokens);
    return text(segment.kind) && !segment.kind.empty();
  }

  const char* at_;
  const char* end_;
  std::vector<CountedUnits>& spare_;
};

}  // namespace orch::io::detail
