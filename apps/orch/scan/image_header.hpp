// Width and height of an image from its header: PNG, JPEG, GIF, BMP, WebP (lossy, lossless, extended), TIFF.
//
// The size is that of the picture as shown: a JPEG's EXIF orientation and a TIFF's orientation tag swap the sides where
// they turn the picture by a quarter, as loaders that honour orientation see it. An animation counts with its canvas, a
// TIFF with its first page.
//
// Libraries: those of the formats, which stop behind the header (libpng, libjpeg with libexif for orientation, libwebp,
// libtiff), and stb_image for GIF and BMP. What reads all formats alike (ImageMagick, FFmpeg's decoders) decodes pixels
// to learn a size; stb_image alone lacks WebP and TIFF, and its JPEG reader oversteps an array on a damaged header.
// Reads the first 64 KiB, the first 1 MiB where a header is longer; of a TIFF the directory, wherever it stands.
// Refused beside damage: JPEG above 65500 pixels a side or with 12 bits, PNG above 1000000 a side.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bytes.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch::scan {

/// Throws BadMember.
[[nodiscard]] Image read_image_header(Bytes& bytes);

}  // namespace orch::scan
