// What a member is, by the last extension of its name, as training loaders decide it. Everything else is ignored.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace orch::scan {

enum class MemberKind { image, audio, video, text, json, other };

/// "a/b.seg.PNG" → "png"; empty without an extension.
[[nodiscard]] std::string extension(std::string_view path);
[[nodiscard]] MemberKind member_kind(std::string_view path);
/// .tar, .tar.gz, .tgz, .tar.zst, .tzst
[[nodiscard]] bool is_shard(std::string_view path);

}  // namespace orch::scan
