#include "fault.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <map>
#include <string_view>

#include "orchmllm/base/error.hpp"

namespace orch::apps {

Fault Fault::from_environment() {
  const char* text = std::getenv("ORCH_RUN_FAULT");
  if (text == nullptr || *text == 0) return {};
  const std::map<std::string_view, Kind> kinds{
      {"kill", Kind::kill}, {"stall", Kind::stall}, {"corrupt", Kind::corrupt}};
  std::vector<std::string_view> parts;
  std::string_view rest = text;
  for (std::size_t colon = rest.find(':'); colon != std::string_view::npos; colon = rest.find(':')) {
    parts.push_back(rest.substr(0, colon));
    rest.remove_prefix(colon + 1);
  }
  parts.push_back(rest);
  const auto number = [](std::string_view digits, auto& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  Fault fault;
  const bool complete = parts.size() == 4 && kinds.count(parts[0]) > 0 && number(parts[1], fault.rank) &&
                        (parts[2] == "planning" || parts[2] == "exchange" || parts[2] == "compute") &&
                        number(parts[3], fault.step);
  if (!complete) {
    throw InvalidInput(fmt::format("ORCH_RUN_FAULT={}: expected kill, stall or corrupt, then :RANK:PLACE:STEP", text));
  }
  fault.kind = kinds.at(parts[0]);
  fault.place = parts[2];
  return fault;
}

void Fault::strike(const std::string& where, std::uint32_t of_rank, std::uint64_t of_step) const {
  if (!is_at(where, of_rank, of_step)) return;
  if (kind == Kind::kill) std::raise(SIGKILL);
  while (kind == Kind::stall) pause();
}

}  // namespace orch::apps
