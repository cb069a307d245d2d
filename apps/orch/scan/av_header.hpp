// Durations of sound and video, frame sizes of video, from the headers of their containers.
//
// One library reads all of them: FFmpeg's libavformat (WAV, FLAC, OGG, MP3, AAC, M4A, AIFF, CAF, MP4, MOV, MKV, WebM,
// AVI). It takes durations from headers without decoding a sample; libsndfile would do so for WAV, FLAC and OGG, but
// decodes an MP3 from end to end and knows no video. Only demuxers of single files are admitted: playlists, which open
// other files, are not.
//
// A video is recorded by its duration and not by its number of frames: in a trace, frames are what an encoder takes,
// and how many it takes of a second is the model's rule. The size is that of the picture as shown (a quarter turn in
// the container's display matrix swaps the sides). Microseconds, rounded to nearest.
//
// Reads what the demuxer asks for, 64 MiB at most, however a hostile file sends it about.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "bytes.hpp"
#include "orchmllm/model/sample.hpp"

namespace orch::scan {

struct AvHeader {
  std::optional<VideoClip> video;  ///< the best video stream; a cover picture is none
  std::optional<AudioClip> audio;  ///< the best audio stream
  /// The file states no duration (AAC without a container, MP3 without a table of contents): it is the size over the
  /// bit rate of the first frames, exact where that is constant.
  bool estimated = false;
};

/// Throws BadMember.
[[nodiscard]] AvHeader read_av_header(Bytes& bytes);

}  // namespace orch::scan
