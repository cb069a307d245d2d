#include "av_header.hpp"

extern "C" {
#include <libavformat/avformat.h>
#include <libavutil/display.h>
}

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace orch::scan {

namespace {

constexpr const char* demuxers = "wav,w64,flac,ogg,mp3,aac,aiff,caf,avi,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2";
/// Opened only where a header leaves a question: sound without a container, and MPEG-4 part 2 and H.263, for which the
/// MP4 demuxer leaves the frame size to the decoder.
constexpr const char* decoders = "mp3,mp3float,aac,mpeg4,h263";
constexpr std::uint64_t most_bytes_read = std::uint64_t{64} << 20U;
constexpr std::size_t most_bytes_at_once = std::size_t{256} << 20U;
constexpr int buffer_bytes = 32 << 10;
constexpr std::int64_t probe_bytes = std::int64_t{1} << 20U;
constexpr std::int64_t most_microseconds = 10'000'000'000'000;  // the trace format's limit
constexpr int most_pixels_a_side = 1 << 20;                     // the trace format's limit

/// Position and allowance of one member; the demuxer reads through the callbacks below.
struct Source {
  Bytes* bytes;
  std::uint64_t at = 0;
  std::uint64_t read = 0;
};

int read_packet(void* opaque, std::uint8_t* to, int size) {
  auto& source = *static_cast<Source*>(opaque);
  if (source.read > most_bytes_read) return AVERROR_EOF;
  const std::size_t got = source.bytes->read(source.at, {reinterpret_cast<char*>(to), static_cast<std::size_t>(size)});
  if (got == 0) return AVERROR_EOF;
  source.at += got;
  source.read += got;
  return static_cast<int>(got);
}

std::int64_t seek(void* opaque, std::int64_t offset, int whence) {
  auto& source = *static_cast<Source*>(opaque);
  const auto size = static_cast<std::int64_t>(source.bytes->size());
  whence &= ~AVSEEK_FORCE;
  if (whence == AVSEEK_SIZE) return size;
  if (whence == SEEK_CUR) offset += static_cast<std::int64_t>(source.at);
  if (whence == SEEK_END) offset += size;
  if (offset < 0) return AVERROR(EINVAL);
  source.at = static_cast<std::uint64_t>(offset);
  source.read += 512;  // a seek is not free either: the allowance ends endless ones
  return offset;
}

struct CloseInput {
  void operator()(AVFormatContext* context) const { avformat_close_input(&context); }
};
struct FreeIo {
  void operator()(AVIOContext* io) const {
    av_freep(&io->buffer);
    avio_context_free(&io);
  }
};

/// Half of microseconds up, 0 where the duration is unknown.
[[nodiscard]] std::uint64_t microseconds(std::int64_t duration, AVRational unit) {
  if (duration == AV_NOPTS_VALUE || duration <= 0 || unit.num <= 0 || unit.den <= 0) return 0;
  const std::int64_t value = av_rescale_q(duration, unit, {1, 1'000'000});
  if (value > most_microseconds) throw BadMember("lasts more than 10000000 seconds");
  return value <= 0 ? 1 : static_cast<std::uint64_t>(value);
}

[[nodiscard]] bool quarter_turn(const AVStream& stream) {
  const std::uint8_t* matrix = av_stream_get_side_data(&stream, AV_PKT_DATA_DISPLAYMATRIX, nullptr);
  if (matrix == nullptr) return false;
  const double degrees = std::abs(av_display_rotation_get(reinterpret_cast<const std::int32_t*>(matrix)));
  return degrees > 45 && degrees < 135;
}

/// A member opened once: as a stream from its beginning, or with jumps.
class Input {
 public:
  Input(Bytes& bytes, bool jumps) : source_{&bytes} {
    auto* buffer = static_cast<unsigned char*>(av_malloc(buffer_bytes));
    io_.reset(avio_alloc_context(buffer, buffer_bytes, 0, &source_, read_packet, nullptr, seek));
    if (!io_) throw std::bad_alloc();
    if (!jumps) io_->seekable = 0;
    AVFormatContext* context = avformat_alloc_context();
    if (context == nullptr) throw std::bad_alloc();
    context->pb = io_.get();
    context->format_whitelist = av_strdup(demuxers);
    context->codec_whitelist = av_strdup(decoders);
    context->protocol_whitelist = av_strdup("none");
    context->probesize = probe_bytes;
    // Frees the context where it fails.
    if (avformat_open_input(&context, "", nullptr, nullptr) == 0) context_.reset(context);
  }

  [[nodiscard]] bool open() const { return context_ != nullptr; }

  /// Parses packets behind the header, for what it leaves out.
  void look_behind_header() { (void)avformat_find_stream_info(context_.get(), nullptr); }

  [[nodiscard]] AvHeader header() const {
    AvHeader header;
    header.estimated = context_->duration_estimation_method == AVFMT_DURATION_FROM_BITRATE;
    if (const AVStream* stream = best(AVMEDIA_TYPE_VIDEO)) header.video = video(*stream);
    if (const AVStream* stream = best(AVMEDIA_TYPE_AUDIO)) header.audio = AudioClip{duration(*stream)};
    return header;
  }

 private:
  [[nodiscard]] const AVStream* best(AVMediaType type) const {
    const AVStream* found = nullptr;
    for (unsigned i = 0; i < context_->nb_streams; ++i) {
      const AVStream* stream = context_->streams[i];
      if (stream->codecpar->codec_type != type || (stream->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0) continue;
      if (found == nullptr) found = stream;
      if ((stream->disposition & AV_DISPOSITION_DEFAULT) != 0) return stream;
    }
    return found;
  }

  [[nodiscard]] std::uint64_t duration(const AVStream& stream) const {
    // OGG counts the samples that an Opus decoder throws away in front.
    const bool opus_in_ogg =
        stream.codecpar->codec_id == AV_CODEC_ID_OPUS && std::string_view(context_->iformat->name) == "ogg";
    const std::int64_t thrown_away =
        opus_in_ogg ? av_rescale_q(stream.codecpar->initial_padding, {1, 48'000}, stream.time_base) : 0;
    if (stream.duration > thrown_away) return microseconds(stream.duration - thrown_away, stream.time_base);
    return microseconds(context_->duration, {1, AV_TIME_BASE});
  }

  [[nodiscard]] VideoClip video(const AVStream& stream) const {
    int width = stream.codecpar->width;
    int height = stream.codecpar->height;
    if (width > most_pixels_a_side || height > most_pixels_a_side) {
      throw BadMember("is " + std::to_string(width) + " x " + std::to_string(height) + " pixels, expected at most " +
                      std::to_string(most_pixels_a_side) + " a side");
    }
    if (width < 1 || height < 1) width = height = 0;
    if (quarter_turn(stream)) std::swap(width, height);
    return {0, duration(stream), {static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)}};
  }

  Source source_;
  std::unique_ptr<AVIOContext, FreeIo> io_;
  std::unique_ptr<AVFormatContext, CloseInput> context_;  // closed before what it reads from
};

/// All that a header can say is known.
[[nodiscard]] bool complete(const AvHeader& header) {
  if (!header.video && !header.audio) return false;
  if (header.video && (header.video->microseconds == 0 || header.video->size.width == 0)) return false;
  return !header.audio || header.audio->microseconds != 0;
}

void set_up_once() {
  [[maybe_unused]] static const bool done = [] {
    av_log_set_level(AV_LOG_QUIET);
    av_max_alloc(most_bytes_at_once);
    return true;
  }();
}

}  // namespace

AvHeader read_av_header(Bytes& bytes) {
  set_up_once();
  // From the beginning first: where the header stands in front, a shard's member need not be read to its end.
  if (const Input input(bytes, false); input.open()) {
    const AvHeader header = input.header();
    if (complete(header)) return header;
  }
  Input input(bytes, true);
  if (!input.open()) throw BadMember("no header of a known sound or video format");
  AvHeader header = input.header();
  if (!complete(header)) {
    input.look_behind_header();
    header = input.header();
  }
  if (!header.video && !header.audio) throw BadMember("holds neither sound nor video");
  if (header.video && header.video->microseconds == 0) throw BadMember("the video states no duration");
  if (header.video && header.video->size.width == 0) throw BadMember("the video states no frame size");
  if (!header.video && header.audio->microseconds == 0) throw BadMember("the sound states no duration");
  return header;
}

}  // namespace orch::scan
