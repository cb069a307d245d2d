#include "image_header.hpp"

#include <cstdio>  // before jpeglib.h, which wants it

#include <jpeglib.h>
#include <libexif/exif-data.h>
#include <png.h>
#include <tiffio.h>
#include <webp/decode.h>

#include <csetjmp>
#include <cstdlib>
#include <memory>
#include <utility>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_STDIO
#define STBI_ONLY_GIF
#define STBI_ONLY_BMP
#include <stb/stb_image.h>

namespace orch::scan {

namespace {

constexpr std::size_t short_head = std::size_t{64} << 10U;
constexpr std::size_t long_head = std::size_t{1} << 20U;
constexpr std::int64_t most_pixels_a_side = std::int64_t{1} << 20U;  // the trace format's limit

[[nodiscard]] const unsigned char* data_of(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

[[nodiscard]] Image checked(std::int64_t width, std::int64_t height) {
  if (width < 1 || height < 1 || width > most_pixels_a_side || height > most_pixels_a_side) {
    throw BadMember("is " + std::to_string(width) + " x " + std::to_string(height) + " pixels, expected 1 to " +
                    std::to_string(most_pixels_a_side) + " a side");
  }
  return {static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)};
}

/// EXIF and TIFF number orientations alike: 5 to 8 turn the picture by a quarter.
[[nodiscard]] Image oriented(Image image, unsigned orientation) {
  if (orientation >= 5 && orientation <= 8) std::swap(image.width, image.height);
  return image;
}

// --- TIFF: libtiff reads through callbacks, since the directory often stands at the end ---------------------------

struct TiffSource {
  Bytes* bytes;
  std::uint64_t at = 0;
};

tmsize_t tiff_read(thandle_t handle, void* to, tmsize_t size) {
  auto& source = *static_cast<TiffSource*>(handle);
  tmsize_t got = 0;
  while (got < size) {
    const std::size_t more =
        source.bytes->read(source.at, {static_cast<char*>(to) + got, static_cast<std::size_t>(size - got)});
    if (more == 0) break;
    source.at += more;
    got += static_cast<tmsize_t>(more);
  }
  return got;
}

toff_t tiff_seek(thandle_t handle, toff_t offset, int whence) {
  auto& source = *static_cast<TiffSource*>(handle);
  const std::uint64_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? source.at : source.bytes->size();
  return source.at = from + offset;
}

toff_t tiff_size(thandle_t handle) { return static_cast<TiffSource*>(handle)->bytes->size(); }
tmsize_t tiff_write(thandle_t, void*, tmsize_t) { return -1; }
int tiff_close(thandle_t) { return 0; }
int quiet(TIFF*, void*, const char*, const char*, va_list) { return 1; }

[[nodiscard]] Image read_tiff(Bytes& bytes) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                 TIFFOpenOptionsFree);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), tmsize_t{64} << 20U);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), quiet, nullptr);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), quiet, nullptr);
  TiffSource source{&bytes};
  // m: no memory map; D, O: leave the tables of strips alone until somebody asks for one.
  const std::unique_ptr<TIFF, decltype(&TIFFClose)> tiff(
      TIFFClientOpenExt("member", "rmDO", &source, tiff_read, tiff_write, tiff_seek, tiff_close, tiff_size, nullptr,
                        nullptr, options.get()),
      TIFFClose);
  if (!tiff) throw BadMember("is not a TIFF image, or its directory is damaged or out of reach");
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint16_t orientation = 1;
  TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height);
  TIFFGetFieldDefaulted(tiff.get(), TIFFTAG_ORIENTATION, &orientation);
  return oriented(checked(width, height), orientation);
}

// --- JPEG: libjpeg reports errors by jumping, so nothing that needs a destructor may live between ------------------

struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg hands out a pointer to it
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void jpeg_failed(j_common_ptr jpeg) {
  auto& errors = *reinterpret_cast<JpegErrors*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors.message);
  std::longjmp(errors.back, 1);
}

void jpeg_quiet(j_common_ptr, int) {}

/// Of an EXIF segment; 1 (upright) where it states none.
[[nodiscard]] unsigned exif_orientation(const unsigned char* bytes, unsigned size) {
  const std::unique_ptr<ExifData, decltype(&exif_data_unref)> exif(exif_data_new_from_data(bytes, size),
                                                                   exif_data_unref);
  if (!exif) return 1;
  const ExifEntry* entry = exif_content_get_entry(exif->ifd[EXIF_IFD_0], EXIF_TAG_ORIENTATION);
  if (entry == nullptr || entry->format != EXIF_FORMAT_SHORT || entry->size < 2) return 1;
  return exif_get_short(entry->data, exif_data_get_byte_order(exif.get()));
}

/// Keeps the EXIF segments while it reads. False where it fails, with the reason in `errors`.
[[nodiscard]] bool read_jpeg_header(jpeg_decompress_struct& jpeg, JpegErrors& errors, std::string_view head) {
  if (setjmp(errors.back) != 0) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_mem_src(&jpeg, data_of(head), static_cast<unsigned long>(head.size()));
  jpeg_read_header(&jpeg, TRUE);
  return true;
}

[[nodiscard]] Image read_jpeg(std::string_view head) {
  jpeg_decompress_struct jpeg{};
  JpegErrors errors{};
  jpeg.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = jpeg_failed;
  errors.manager.emit_message = jpeg_quiet;
  const bool read = read_jpeg_header(jpeg, errors, head);
  const std::unique_ptr<jpeg_decompress_struct, decltype(&jpeg_destroy_decompress)> owner(&jpeg,
                                                                                          jpeg_destroy_decompress);
  if (!read) throw BadMember(std::string("the JPEG header is damaged (") + errors.message + ")");
  unsigned orientation = 1;
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (!data.starts_with("Exif")) continue;
    orientation = exif_orientation(marker->data, marker->data_length);
    break;
  }
  return oriented(checked(jpeg.image_width, jpeg.image_height), orientation);
}

// --- formats whose header stands in front ------------------------------------------------------------------------

[[nodiscard]] Image read_png(std::string_view head) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const bool read = png_image_begin_read_from_memory(&image, head.data(), head.size()) != 0;
  const std::unique_ptr<png_image, decltype(&png_image_free)> owner(&image, png_image_free);
  if (!read) throw BadMember(std::string("the PNG header is damaged (") + image.message + ")");
  return checked(image.width, image.height);
}

[[nodiscard]] Image read_webp(std::string_view head) {
  int width = 0;
  int height = 0;
  if (WebPGetInfo(data_of(head), head.size(), &width, &height) == 0) throw BadMember("the WebP header is damaged");
  return checked(width, height);
}

[[nodiscard]] Image read_gif_or_bmp(std::string_view head) {
  int width = 0;
  int height = 0;
  int channels = 0;
  if (stbi_info_from_memory(data_of(head), static_cast<int>(head.size()), &width, &height, &channels) == 0) {
    throw BadMember("no header of a known image format");
  }
  // A BMP stored from the top has a negative height.
  return checked(width, std::abs(std::int64_t{height}));
}

[[nodiscard]] Image read_head_image(std::string_view head) {
  if (head.starts_with("\xff\xd8")) return read_jpeg(head);
  if (head.starts_with("\x89PNG")) return read_png(head);
  if (head.starts_with("RIFF") && head.substr(0, 12).ends_with("WEBP")) return read_webp(head);
  return read_gif_or_bmp(head);
}

[[nodiscard]] bool is_tiff(std::string_view head) {
  if (head.size() < 4) return false;
  const std::string_view magic = head.substr(0, 4);
  using namespace std::string_view_literals;
  return magic == "II*\0"sv || magic == "MM\0*"sv || magic == "II+\0"sv || magic == "MM\0+"sv;
}

}  // namespace

Image read_image_header(Bytes& bytes) {
  const std::string head = read_head(bytes, short_head);
  if (is_tiff(head)) return read_tiff(bytes);
  try {
    return read_head_image(head);
  } catch (const BadMember&) {
    if (head.size() < short_head || bytes.size() <= short_head) throw;
  }
  return read_head_image(read_head(bytes, long_head));
}

}  // namespace orch::scan
