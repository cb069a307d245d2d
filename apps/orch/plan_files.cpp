#include "plan_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "orchmllm/io/atomic_file.hpp"
#include "orchmllm/io/plan.hpp"
#include "printable.hpp"

namespace orch::apps {

void write_document(const Json& json, const std::string& path) {
  if (path == "-") {
    std::cout << json.dump() << '\n' << std::flush;
    if (!std::cout) throw Error("standard output: cannot be written", 1);
    return;
  }
  io::AtomicFile file(path);
  if (path.ends_with(".cbor") || path.ends_with(".cbor.gz")) {
    const std::vector<std::uint8_t> bytes = io::to_cbor(json);
    file.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } else {
    file.write(json.dump() + "\n");
  }
  file.commit();
}

std::uint64_t write_traffic_matrix(const StepPlan& plan, const std::string& path) {
  const std::uint32_t ranks = plan.ranks();
  std::vector<std::uint64_t> received(ranks, 0);
  std::uint64_t largest = 0;
  std::string text;
  for (std::uint32_t from = 0; from < ranks; ++from) {
    std::vector<std::uint64_t> row(ranks, 0);
    for (const Route& route : plan.routes) {
      const ExchangePlan& exchange = route.exchange;
      for (std::uint32_t t = exchange.first_send[from]; t < exchange.first_send[from + 1]; ++t) {
        row[exchange.transfers[t].to] = checked_add(row[exchange.transfers[t].to], exchange.bytes(t));
      }
    }
    std::uint64_t sent = 0;
    for (std::uint32_t to = 0; to < ranks; ++to) {
      sent = checked_add(sent, row[to]);
      received[to] = checked_add(received[to], row[to]);
      text += fmt::format("{}{}", to == 0 ? "" : " ", row[to]);
    }
    text += '\n';
    largest = std::max(largest, sent);
  }
  largest = std::max(largest, *std::max_element(received.begin(), received.end()));
  if (path == "-") {
    std::cout << text << std::flush;
    if (!std::cout) throw Error("standard output: cannot be written", 1);
    return largest;
  }
  io::AtomicFile file(path);
  file.write(text);
  file.commit();
  return largest;
}

void print_traffic_hint(const std::string& path, std::uint64_t largest_total) {
  fmt::print("\nOn the cluster: NCCL_TESTS_ALLTOALLV_MATRIX_FILE={} alltoallv_perf -b {} -e {} -a 3\n", printable(path),
             largest_total, largest_total);
}

}  // namespace orch::apps
