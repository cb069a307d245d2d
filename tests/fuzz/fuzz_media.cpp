// libFuzzer: any bytes are an image, sound, video or text of sizes that a trace can hold, or refused with BadMember.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "av_header.hpp"
#include "image_header.hpp"
#include "text_words.hpp"

namespace {

constexpr std::uint32_t most_pixels = 1U << 20U;
constexpr std::uint64_t most_microseconds = 10'000'000'000'000;

template <class Read>
void try_to(const Read& read) {
  try {
    read();
  } catch (const orch::scan::BadMember&) {
  }
}

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  orch::scan::MemoryBytes member(bytes);
  try_to([&] {
    const orch::Image image = orch::scan::read_image_header(member);
    check(image.width >= 1 && image.width <= most_pixels && image.height >= 1 && image.height <= most_pixels);
  });
  try_to([&] {
    const orch::scan::AvHeader header = orch::scan::read_av_header(member);
    check(header.video || header.audio);
    if (header.audio) check(header.audio->microseconds <= most_microseconds);
    if (!header.video) return;
    check(header.video->microseconds >= 1 && header.video->microseconds <= most_microseconds);
    check(header.video->size.width >= 1 && header.video->size.width <= most_pixels);
    check(header.video->size.height >= 1 && header.video->size.height <= most_pixels);
  });
  try_to([&] { check(orch::scan::count_json_words(bytes).value_or(0) <= size); });
  check(orch::scan::count_words(bytes) <= size);
  return 0;
}
