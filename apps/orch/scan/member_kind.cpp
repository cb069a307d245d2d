#include "member_kind.hpp"

#include <algorithm>
#include <array>

namespace orch::scan {

namespace {

constexpr std::array image_extensions{"jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "dib", "tif", "tiff"};
constexpr std::array audio_extensions{"wav", "wave", "w64", "flac", "ogg",  "oga", "opus",
                                      "mp3", "m4a",  "aac", "aif",  "aiff", "caf", "mka"};
constexpr std::array video_extensions{"mp4", "m4v", "mov", "3gp", "mkv", "webm", "avi", "ogv"};

template <class Extensions>
bool contains(const Extensions& extensions, std::string_view wanted) {
  return std::find(extensions.begin(), extensions.end(), wanted) != extensions.end();
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

std::string extension(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? "" : lower(name.substr(dot + 1));
}

MemberKind member_kind(std::string_view path) {
  const std::string end = extension(path);
  if (contains(image_extensions, end)) return MemberKind::image;
  if (contains(audio_extensions, end)) return MemberKind::audio;
  if (contains(video_extensions, end)) return MemberKind::video;
  if (end == "txt") return MemberKind::text;
  if (end == "json") return MemberKind::json;
  return MemberKind::other;
}

bool is_shard(std::string_view path) {
  const std::string name = lower(path);
  constexpr std::array ends{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"};
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace orch::scan
