#include "number_options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace orch::apps {

namespace {

/// Whether all of `text` is one number of this type.
template <class Number>
bool parses(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end;
}

std::string check_unsigned(const std::string& text) {
  std::uint64_t number = 0;
  const bool padded = text.size() > 1 && text.front() == '0';
  if (!padded && parses(text, number)) return {};
  return fmt::format("\"{}\" is not an integer from 0 to 18446744073709551615 in decimal digits", text);
}

std::string check_real(const std::string& text) {
  double number = 0;
  if (parses(text, number) && std::isfinite(number)) return {};
  return fmt::format("\"{}\" is not a number such as 3, 0.25 or 1e-4", text);
}

}  // namespace

void require_decimal_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();  // and what further checks say of themselves
    const bool is_unsigned = type.starts_with("UINT");
    if (!is_unsigned && !type.starts_with("FLOAT")) continue;
    // transform() puts a check in front of all others.
    option->transform(CLI::Validator(
        [is_unsigned](std::string& text) { return is_unsigned ? check_unsigned(text) : check_real(text); }, ""));
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) require_decimal_numbers(*command);
}

}  // namespace orch::apps
