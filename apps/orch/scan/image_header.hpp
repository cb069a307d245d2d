// Width and height of an image from its header: PNG, JPEG, GIF, BMP, WebP (lossy, lossless, extended), TIFF.
//
// The size is that of the picture as shown: a JPEG's EXIF orientation and a TIFF's orientation tag swap the sides where
// they turn the picture by a quarter, as loaders that honour orientation see it. An animation counts with its canvas, a
// TIFF with its first page.
//
// Libraries, each the smallest that stops behind the header: stb_image (PNG, JPEG, GIF, BMP; the libraries of the
// formats would do the same in four times the code, and TurboJPEG refuses rare subsamplings), libexif (orientation),
// libwebp and libtiff, which stb_image has no counterpart for. FFmpeg and ImageMagick decode pixels to learn a size.
// Reads the first 64 KiB, the first 1 MiB where a header is longer; of a TIFF the directory, wherever it stands.
// Limits: stb_image refuses PNG of more than 2^30 samples (width · height · channels), and JPEG with 12 bits or
// arithmetic coding.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bytes.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch::scan {

/// Throws BadMember.
[[nodiscard]] Image read_image_header(Bytes& bytes);

}  // namespace orch::scan
