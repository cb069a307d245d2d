// Headers of media: sizes and durations from tiny byte arrays, and what is refused.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "av_header.hpp"
#include "image_header.hpp"
#include "member_kind.hpp"
#include "printable.hpp"
#include "text_words.hpp"

using namespace orch::scan;
using orch::apps::printable;
using namespace std::string_literals;

namespace {

[[nodiscard]] std::string big(std::uint32_t value, int bytes) {
  std::string out;
  for (int i = bytes; i-- > 0;) out += static_cast<char>(value >> (8 * i) & 255U);
  return out;
}

[[nodiscard]] std::string little(std::uint32_t value, int bytes) {
  const std::string reversed = big(value, bytes);
  return {reversed.rbegin(), reversed.rend()};
}

/// A chunk with its CRC-32.
[[nodiscard]] std::string png_chunk(const std::string& type_and_data) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : type_and_data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0xedb88320U : 0U);
  }
  return big(static_cast<std::uint32_t>(type_and_data.size()) - 4, 4) + type_and_data + big(~crc, 4);
}

[[nodiscard]] std::string png(std::uint32_t width, std::uint32_t height) {
  return "\x89PNG\r\n\x1a\n"s + png_chunk("IHDR" + big(width, 4) + big(height, 4) + "\x08\x02\0\0\0"s) +
         png_chunk("IDAT");
}

[[nodiscard]] std::string gif(std::uint32_t width, std::uint32_t height) {
  return "GIF89a" + little(width, 2) + little(height, 2) + "\0\0\0;"s;
}

[[nodiscard]] std::string bmp(std::int32_t width, std::int32_t height) {
  return "BM" + little(100, 4) + little(0, 4) + little(54, 4) + little(40, 4) +
         little(static_cast<std::uint32_t>(width), 4) + little(static_cast<std::uint32_t>(height), 4) + little(1, 2) +
         little(24, 2) + std::string(24, '\0');
}

/// One TIFF directory: width, height, orientation, and what libtiff needs to accept it.
[[nodiscard]] std::string tiff(bool big_endian, std::uint32_t width, std::uint32_t height, std::uint32_t orientation) {
  const auto number = [&](std::uint32_t value, int bytes) {
    return big_endian ? big(value, bytes) : little(value, bytes);
  };
  const auto tag = [&](std::uint32_t id, std::uint32_t value) {
    return number(id, 2) + number(4, 2) + number(1, 4) + number(value, 4);
  };
  const auto short_tag = [&](std::uint32_t id, std::uint32_t value) {
    return number(id, 2) + number(3, 2) + number(1, 4) + number(value, 2) + number(0, 2);
  };
  return (big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(6, 2) + tag(256, width) + tag(257, height) +
         short_tag(258, 8) + tag(273, 8) + short_tag(274, orientation) + tag(279, 1) + number(0, 4);
}

[[nodiscard]] std::string jpeg(std::uint32_t width, std::uint32_t height, std::uint32_t orientation,
                               std::size_t other_segments = 0) {
  std::string out = "\xff\xd8"s;
  for (std::size_t i = 0; i < other_segments; ++i) out += "\xff\xe2" + big(60000, 2) + std::string(59998, 'x');
  if (orientation != 0) {
    const std::string exif = "Exif\0\0"s + "MM" + big(42, 2) + big(8, 4) + big(1, 2) + big(0x112, 2) + big(3, 2) +
                             big(1, 4) + big(orientation, 2) + big(0, 2) + big(0, 4);
    out += "\xff\xe1" + big(static_cast<std::uint32_t>(exif.size()) + 2, 2) + exif;
  }
  return out + "\xff\xc0" + big(17, 2) + "\x08" + big(height, 2) + big(width, 2) +
         "\x03\x01\x11\0\x02\x11\0\x03\x11\0"s + "\xff\xda" + big(12, 2) + "\x03\x01\0\x02\0\x03\0\0\x3f\0"s;
}

[[nodiscard]] std::string webp(const std::string& chunk) {
  return "RIFF" + little(static_cast<std::uint32_t>(chunk.size()) + 4, 4) + "WEBP" + chunk;
}

[[nodiscard]] std::string webp_lossy(std::uint32_t width, std::uint32_t height) {
  // A key frame of profile 0 whose first partition has 5 bytes.
  return webp("VP8 " + little(20, 4) + little(5U << 5U | 1U << 4U, 3) + "\x9d\x01\x2a" + little(width, 2) +
              little(height, 2) + std::string(10, '\0'));
}

[[nodiscard]] std::string webp_lossless(std::uint32_t width, std::uint32_t height) {
  return webp("VP8L" + little(10, 4) + "\x2f" + little((width - 1) | (height - 1) << 14U, 4) + std::string(5, '\0'));
}

[[nodiscard]] std::string webp_extended(std::uint32_t width, std::uint32_t height) {
  return webp("VP8X" + little(10, 4) + little(2, 4) + little(width - 1, 3) + little(height - 1, 3) +
              std::string(16, '\0'));
}

[[nodiscard]] std::string wav(std::uint32_t rate, std::uint32_t samples) {
  return "RIFF" + little(36 + 2 * samples, 4) + "WAVEfmt " + little(16, 4) + little(1, 2) + little(1, 2) +
         little(rate, 4) + little(2 * rate, 4) + little(2, 2) + little(16, 2) + "data" + little(2 * samples, 4) +
         std::string(2 * samples, '\0');
}

[[nodiscard]] std::string flac(std::uint32_t rate, std::uint32_t samples) {
  return "fLaC" + big(0x80000022, 4) + big(4096, 2) + big(4096, 2) + big(0, 3) + big(0, 3) +
         big(rate << 4U | 15U >> 4U, 3) + big((15U & 15U) << 4U, 1) + big(samples, 4) + std::string(16, '\0');
}

void check_size(const std::string& bytes, std::uint32_t width, std::uint32_t height) {
  MemoryBytes member(bytes);
  const orch::Image image = read_image_header(member);
  CHECK(image.width == width);
  CHECK(image.height == height);
}

void check_bad_image(std::string_view bytes) {
  MemoryBytes member(bytes);
  CHECK_THROWS_AS((void)read_image_header(member), BadMember);
}

[[nodiscard]] std::uint64_t sound_microseconds(const std::string& bytes) {
  MemoryBytes member(bytes);
  return read_av_header(member).audio.value().microseconds;
}

}  // namespace

TEST_CASE("image sizes") {
  check_size(png(1, 1), 1, 1);
  check_size(png(640, 1'000'000), 640, 1'000'000);
  check_size(gif(300, 2), 300, 2);
  check_size(bmp(12, 34), 12, 34);
  check_size(bmp(12, -34), 12, 34);  // stored from the top
  check_size(jpeg(641, 479, 0), 641, 479);
  check_size(webp_lossy(176, 144), 176, 144);
  check_size(webp_lossless(16384, 3), 16384, 3);
  check_size(webp_extended(400, 301), 400, 301);
  for (const bool big_endian : {false, true}) check_size(tiff(big_endian, 70, 50, 1), 70, 50);
}

TEST_CASE("orientation: 5 to 8 swap the sides") {
  for (std::uint32_t orientation = 0; orientation < 12; ++orientation) {
    const bool swap = orientation >= 5 && orientation <= 8;
    check_size(jpeg(60, 40, orientation), swap ? 40 : 60, swap ? 60 : 40);
    if (orientation < 1 || orientation > 8) continue;
    check_size(tiff(orientation % 2 == 0, 60, 40, orientation), swap ? 40 : 60, swap ? 60 : 40);
  }
  check_size(jpeg(60, 40, 6, 5), 40, 60);  // behind 300 kB of other segments
}

TEST_CASE("images that are refused") {
  check_bad_image("");
  check_bad_image("no image at all, some text");
  check_bad_image(png(0, 10));
  check_bad_image(png((1U << 20U) + 1, 10));
  check_bad_image(png(0xffffffff, 0xffffffff));
  check_bad_image(gif(0, 5));
  check_bad_image(bmp(5, 0));
  check_bad_image(bmp(5, -2147483647 - 1));
  check_bad_image(jpeg(60, 0, 1));
  check_bad_image(jpeg(60, 40, 1, 20));  // the header ends behind the first MiB
  check_bad_image(tiff(true, 0, 5, 1));
  // A Huffman table with more codes than symbols.
  check_bad_image("\xff\xd8\xff\xc4" + big(19 + 4080, 2) + '\0' + std::string(4096, '\xff') + jpeg(5, 5, 0).substr(2));
}

TEST_CASE("an image cut anywhere is refused or has its size") {
  for (const std::string& whole : {png(9, 7), gif(9, 7), bmp(9, 7), jpeg(9, 7, 1), webp_lossy(9, 7),
                                   webp_lossless(9, 7), webp_extended(9, 7), tiff(false, 9, 7, 1)}) {
    for (std::size_t cut = 0; cut < whole.size(); ++cut) {
      MemoryBytes member(std::string_view(whole).substr(0, cut));
      try {
        const orch::Image image = read_image_header(member);
        CHECK(image.width == 9);
        CHECK(image.height == 7);
      } catch (const BadMember&) {
      }
    }
  }
}

TEST_CASE("durations of sound") {
  CHECK(sound_microseconds(wav(8000, 12000)) == 1'500'000);
  CHECK(sound_microseconds(wav(44100, 1)) == 23);  // 22.68
  CHECK(sound_microseconds(flac(16000, 40000)) == 2'500'000);
  for (const std::string& bad : {""s, "RIFF"s, wav(8000, 100).substr(0, 30), "#EXTM3U\nfile:///etc/passwd\n"s,
                                 "ffconcat version 1.0\nfile a.mp4\n"s, png(5, 5), std::string(100'000, '\0')}) {
    MemoryBytes member(bad);
    CHECK_THROWS_AS((void)read_av_header(member), BadMember);
  }
}

TEST_CASE("words") {
  CHECK(count_words("") == 0);
  CHECK(count_words(" \t\n") == 0);
  CHECK(count_words("one  two\nthree\t") == 3);
  CHECK(count_words("<image>\n<video> what is <audio>this") == 3);
  CHECK(count_json_words(R"({"caption":"a b c"})") == 3);
  CHECK(count_json_words(R"({"caption":"a b c","text":"d"})") == 1);
  CHECK(count_json_words(R"({"caption":"a","conversations":[{"value":"x y"},{"content":"z"},{"value":5},7]})") == 3);
  CHECK(count_json_words(R"({"width":5})") == std::nullopt);
  CHECK(count_json_words(R"({"caption":null})") == std::nullopt);
  CHECK(count_json_words("[1]") == std::nullopt);
  CHECK_THROWS_AS((void)count_json_words("{"), BadMember);
  CHECK_THROWS_AS((void)count_json_words("{\"caption\":\"\xff\"}"), BadMember);
}

TEST_CASE("kinds of members") {
  CHECK(member_kind("a/b.JPG") == MemberKind::image);
  CHECK(member_kind("b.left.webp") == MemberKind::image);
  CHECK(member_kind("x.opus") == MemberKind::audio);
  CHECK(member_kind("x.webm") == MemberKind::video);
  CHECK(member_kind("x.txt") == MemberKind::text);
  CHECK(member_kind("x.json") == MemberKind::json);
  for (const char* name : {"", "jpg", "a.jpg/b", "x.cls", "x.jsonl", "x."})
    CHECK(member_kind(name) == MemberKind::other);
  CHECK(is_shard("x/000.tar"));
  CHECK(is_shard("000.TAR.GZ"));
  CHECK(is_shard("a.tar.zst"));
  CHECK_FALSE(is_shard("a.gz"));
  CHECK_FALSE(is_shard("tar"));
}

TEST_CASE("printable names") {
  CHECK(printable("a/\xc3\xa9 \xe4\xbe\x8b \xf0\x9f\x98\x80") == "a/\xc3\xa9 \xe4\xbe\x8b \xf0\x9f\x98\x80");
  CHECK(printable("a\xff\x1b[2J\n\x7f") == "a\\xff\\x1b[2J\\x0a\\x7f");
  CHECK(printable("\xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xe4\xbe") ==
        "\\xc0\\x80 \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xe4\\xbe");
  CHECK(printable("\xc2\x9b"
                  "2J \xc2\x80 \xc2\xa0") ==
        "\\xc2\\x9b"
        "2J \\xc2\\x80 \xc2\xa0");  // control sequences of one character
}
