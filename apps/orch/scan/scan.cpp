#include "scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <clocale>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "../printable.hpp"
#include "files.hpp"
#include "journal.hpp"
#include "orchmllm/base/error.hpp"
#include "orchmllm/io/atomic_file.hpp"
#include "orchmllm/io/trace_writer.hpp"
#include "progress_bar.hpp"
#include "sample_builder.hpp"
#include "shard.hpp"
#include "walk.hpp"

namespace orch::scan {

namespace {

constexpr std::size_t flush_bytes = std::size_t{1} << 20U;

/// One chunk from its input into the journal.
void scan_chunk(const Chunk& chunk, const Settings& settings, Journal& journal, ProgressBar& progress) {
  journal.begin(chunk.identity);
  ChunkResult result;
  std::string lines;
  SampleBuilder builder(settings, apps::printable(chunk.name), result, [&](const Sample& sample) {
    io::append_sample(lines, sample);
    if (lines.size() < flush_bytes) return;
    journal.lines(chunk.identity, lines);
    lines.clear();
  });
  if (chunk.shard) {
    scan_shard(chunk.name, builder, progress);
  } else {
    scan_files(chunk.files, builder, progress);
  }
  builder.finish();
  if (!lines.empty()) journal.lines(chunk.identity, lines);
  journal.finish(chunk.identity, result);
}

/// Threads take chunks in order and stop taking them at the first failure; of several failures the first in order is
/// thrown, since every chunk before it was taken too.
void scan_chunks(const std::vector<const Chunk*>& chunks, const Settings& settings, Journal& journal,
                 ProgressBar& progress) {
  std::vector<std::exception_ptr> failures(chunks.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> stop = false;
  const auto work = [&] {
    while (!stop) {
      const std::size_t i = next++;
      if (i >= chunks.size()) return;
      try {
        scan_chunk(*chunks[i], settings, journal, progress);
      } catch (...) {
        failures[i] = std::current_exception();
        stop = true;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < std::min<std::size_t>(settings.jobs, chunks.size()); ++i) threads.emplace_back(work);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

/// Those that the journal lacks; an input named twice is scanned once.
[[nodiscard]] std::vector<const Chunk*> missing_chunks(const std::vector<Chunk>& chunks, const Journal& journal) {
  std::vector<const Chunk*> missing;
  std::set<std::uint64_t> taken;
  for (const Chunk& chunk : chunks) {
    if (!journal.done(chunk.identity) && taken.insert(chunk.identity).second) missing.push_back(&chunk);
  }
  return missing;
}

void add_to(ChunkResult& sum, const ChunkResult& one) {
  sum.samples += one.samples;
  sum.left_out += one.left_out;
  sum.images += one.images;
  sum.audio += one.audio;
  sum.video += one.video;
  sum.text_tokens += one.text_tokens;
  sum.estimated += one.estimated;
  sum.returning_keys += one.returning_keys;
  for (const auto& [extension, members] : one.ignored) sum.ignored[extension] += members;
  sum.corrupt_members += one.corrupt_members;
  sum.corrupt.insert(sum.corrupt.end(), one.corrupt.begin(), one.corrupt.end());
}

[[nodiscard]] std::string first_line(const TraceMetadata& metadata, std::uint64_t samples, const std::string& out) {
  std::string name = std::filesystem::path(out).filename().string();
  nlohmann::ordered_json line{{"orchmllm_trace", 1}, {"name", apps::printable(name.substr(0, name.find('.')))}};
  if (!metadata.source.empty()) line["source"] = metadata.source;
  if (!metadata.license.empty()) line["license"] = metadata.license;
  line["kind"] = "training";
  line["samples"] = samples;
  return line.dump() + "\n";
}

/// What the folders themselves lack, before any chunk.
[[nodiscard]] ChunkResult result_of_walk(const Plan& plan, const Settings& settings) {
  ChunkResult result;
  result.ignored = plan.ignored;
  result.corrupt = plan.unreadable;
  result.corrupt_members = plan.unreadable.size();
  if (settings.strict && !result.corrupt.empty()) throw InvalidInput(result.corrupt.front().text() + " (--strict)");
  return result;
}

}  // namespace

ChunkResult scan(const std::vector<std::string>& inputs, const Settings& settings, const TraceMetadata& metadata,
                 const std::string& out) {
  // Names in shards are UTF-8; in the C locale libarchive would refuse them.
  (void)std::setlocale(LC_CTYPE, "C.UTF-8");
  const Plan plan = plan_chunks(inputs, settings);
  ChunkResult sum = result_of_walk(plan, settings);
  Journal journal(out + ".journal");
  const std::vector<const Chunk*> missing = missing_chunks(plan.chunks, journal);
  if (missing.size() < plan.chunks.size()) {
    std::cerr << fmt::format("orch: {} of {} parts are in {}.journal already\n", plan.chunks.size() - missing.size(),
                             plan.chunks.size(), apps::printable(out));
  }
  {
    std::uint64_t bytes = 0;
    for (const Chunk* chunk : missing) bytes += chunk->bytes;
    ProgressBar progress(bytes);
    scan_chunks(missing, settings, journal, progress);
  }
  for (const Chunk& chunk : plan.chunks) add_to(sum, journal.result(chunk.identity));
  if (settings.strict && sum.corrupt_members > 0) {  // found by an earlier scan that was not strict
    throw InvalidInput(sum.corrupt.front().text() + " (--strict)");
  }
  if (sum.samples == 0) {
    throw InvalidInput("no samples found" + (sum.corrupt.empty()
                                                 ? ""
                                                 : fmt::format("; the first of {} corrupt members: {}",
                                                               sum.corrupt_members, sum.corrupt.front().text())));
  }
  io::AtomicFile file(out);
  file.write(first_line(metadata, sum.samples, out));
  for (const Chunk& chunk : plan.chunks) journal.copy(chunk.identity, file);
  file.commit();
  journal.remove();
  return sum;
}

}  // namespace orch::scan
