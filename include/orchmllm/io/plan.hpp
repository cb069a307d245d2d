// Step plans and rank views as JSON and as CBOR (RFC 8949), the same document in both.
//
// A plan stores what determines it: items, ranks before and after every exchange, lengths by field. Reading it back
// builds layouts and exchanges anew and compares the fingerprint of all that ranks act by, so that a file which was
// cut, edited there or made by another version is refused; costs, bounds and solvers' names are taken as they stand.
// docs/schemas/step_plan.schema.json and rank_view.schema.json describe the documents. Complexity: O(size). Throws
// InvalidInput naming the place in the document.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "orchmllm/base/error.hpp"
#include "orchmllm/orchestrate/orchestrator.hpp"
#include "orchmllm/orchestrate/rank_view.hpp"
#include "orchmllm/orchestrate/step_plan.hpp"

namespace orch::io {

using Json = nlohmann::ordered_json;

inline constexpr const char* step_plan_schema = "orchmllm.step_plan/1";
inline constexpr const char* rank_view_schema = "orchmllm.rank_view/1";

namespace detail {

[[nodiscard]] inline Json field_json(const Field& field) {
  return {
      {"name", field.name}, {"element_bytes", field.element_bytes}, {"elements_per_length", field.elements_per_length}};
}

/// Lengths by item, from lengths by slot of the layout before.
[[nodiscard]] inline std::vector<std::uint32_t> by_item(const Layout& before, const std::vector<std::uint32_t>& slots) {
  std::vector<std::uint32_t> result(slots.size());
  for (std::size_t slot = 0; slot < slots.size(); ++slot) result[before.item_at[slot]] = slots[slot];
  return result;
}

/// Items of a route: those of the phase it leaves, or for raw inputs those of the phase it reaches.
[[nodiscard]] inline const PhasePlan& item_phase(const StepPlan& plan, const Route& route) {
  return plan.phases[route.is_input() ? route.to : route.from];
}

/// Where a route's items are before it.
[[nodiscard]] inline std::vector<std::uint32_t> rank_before(const StepPlan& plan, const Route& route) {
  const PhasePlan& phase = item_phase(plan, route);
  return route.is_input() ? home_of_items(plan, phase) : phase.assignment.rank_of;
}

[[nodiscard]] inline Json route_json(const StepPlan& plan, const Route& route) {
  const std::vector<std::uint32_t> before = rank_before(plan, route);
  const Layout from = layout(before, plan.ranks());
  const std::vector<std::uint32_t> after_slot = orch::detail::rank_at(route.exchange.moves.first_after);
  std::vector<std::uint32_t> after(before.size());
  for (std::size_t slot = 0; slot < after.size(); ++slot) {
    after[from.item_at[slot]] = after_slot[route.exchange.moves.to[slot]];
  }
  Json json{{"from", route.is_input() ? "home" : plan.phases[route.from].phase},
            {"to", plan.phases[route.to].phase},
            {"schedule", route.stages ? "hierarchical" : "direct"},
            {"rank_before", before},
            {"rank_after", std::move(after)},
            {"fields", Json::array()}};
  for (const Payload& payload : route.exchange.payload) {
    json["fields"].push_back(field_json(payload.field));
    json["fields"].back()["length"] = by_item(from, payload.length);
  }
  return json;
}

[[nodiscard]] inline Json phase_json(const PhasePlan& phase) {
  return {{"phase", phase.phase},
          {"solver", phase.assignment.solver},
          {"sample_of", phase.sample_of},
          {"length", phase.length},
          {"output", phase.output},
          {"position", phase.position},
          {"rank_of", phase.assignment.rank_of},
          {"rank_cost", phase.assignment.rank_cost},
          {"lower_bound", phase.assignment.lower_bound},
          {"imbalance_before", phase.imbalance_before},
          {"empty_ranks", phase.empty_ranks}};
}

}  // namespace detail

[[nodiscard]] inline Json to_json(const StepPlan& plan) {
  Json json{
      {"schema", step_plan_schema},
      {"plan_hash", hex(plan.hash)},
      {"node_sizes", Json::array()},
      {"rails", plan.topology.rails},
      {"nodes_per_leaf", plan.topology.nodes_per_leaf},
      {"samples", plan.samples},
      {"home_rank", plan.home_rank},
      {"phases", Json::array()},
      {"routes", Json::array()},
      {"loss", {{"tokens", plan.loss.tokens}, {"supervised", plan.loss.supervised}, {"samples", plan.loss.samples}}}};
  for (std::uint32_t node = 0; node < plan.topology.nodes(); ++node) {
    json["node_sizes"].push_back(plan.topology.size(node));
  }
  for (const PhasePlan& phase : plan.phases) json["phases"].push_back(detail::phase_json(phase));
  for (const Route& route : plan.routes) json["routes"].push_back(detail::route_json(plan, route));
  return json;
}

[[nodiscard]] inline Json to_json(const RankView& view) {
  Json json{{"schema", rank_view_schema},
            {"plan_hash", hex(view.plan_hash)},
            {"rank", view.rank},
            {"ranks", view.ranks},
            {"phases", Json::array()},
            {"routes", Json::array()},
            {"loss",
             {{"tokens", view.loss.tokens},
              {"all_tokens", view.loss.all_tokens},
              {"supervised", view.loss.supervised},
              {"all_supervised", view.loss.all_supervised},
              {"samples", view.loss.samples},
              {"all_samples", view.loss.all_samples}}}};
  for (const PhaseView& phase : view.phases) {
    json["phases"].push_back({{"phase", phase.phase},
                              {"sample", phase.sample},
                              {"unit", phase.unit},
                              {"length", phase.length},
                              {"cost", phase.cost},
                              {"dummy", phase.dummy}});
  }
  const auto runs = [](const std::vector<PeerRun>& peers) {
    Json list = Json::array();
    for (const PeerRun& run : peers) {
      list.push_back({{"rank", run.rank}, {"items", run.items}, {"elements", run.elements}});
    }
    return list;
  };
  for (const RouteView& route : view.routes) {
    Json stages = Json::array();
    for (const ExchangeView& stage : route.stages) {
      Json fields = Json::array();
      for (const Field& field : stage.fields) fields.push_back(detail::field_json(field));
      stages.push_back({{"identity", stage.identity},
                        {"fields", std::move(fields)},
                        {"sends", runs(stage.sends)},
                        {"receives", runs(stage.receives)},
                        {"pack", stage.pack},
                        {"pack_length", stage.pack_length},
                        {"unpack", stage.unpack},
                        {"unpack_length", stage.unpack_length},
                        {"sequence_position", stage.sequence_position},
                        {"target_slot", stage.target_slot}});
    }
    json["routes"].push_back({{"from", route.from}, {"to", route.to}, {"stages", std::move(stages)}});
  }
  return json;
}

namespace detail {

/// A value in a document, and where it stands.
struct Node {
  const Json& json;
  std::string path;

  [[noreturn]] void refuse(const std::string& what) const {
    throw InvalidInput((path.empty() ? "plan" : "plan" + path) + ": " + what);
  }
  [[nodiscard]] Node at(const char* key) const {
    if (!json.is_object()) refuse("expected an object");
    const auto found = json.find(key);
    if (found == json.end()) refuse(std::string("lacks \"") + key + "\"");
    return {*found, path + "/" + key};
  }
  [[nodiscard]] Node at(std::size_t index) const { return {json[index], path + "/" + std::to_string(index)}; }
  [[nodiscard]] std::size_t size() const {
    if (!json.is_array()) refuse("expected an array");
    return json.size();
  }
  [[nodiscard]] std::string text() const {
    if (!json.is_string()) refuse("expected a string");
    return json.get<std::string>();
  }
  /// A whole number of at most `most`.
  [[nodiscard]] std::uint64_t number(std::uint64_t most = ~std::uint64_t{0}) const {
    if (!json.is_number_unsigned() && !(json.is_number_integer() && json.get<std::int64_t>() >= 0)) {
      refuse("expected a whole number, at least 0");
    }
    const auto value = json.get<std::uint64_t>();
    if (value > most) refuse(std::to_string(value) + " is too large, at most " + std::to_string(most));
    return value;
  }
  template <class Integer>
  [[nodiscard]] std::vector<Integer> numbers(std::uint64_t most = std::numeric_limits<Integer>::max()) const {
    std::vector<Integer> values(size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Integer>(at(i).number(most));
    return values;
  }
  template <class Integer>
  [[nodiscard]] std::vector<Integer> numbers_of(std::size_t count, std::uint64_t most) const {
    if (size() != count) refuse(std::to_string(size()) + " entries, expected " + std::to_string(count));
    return numbers<Integer>(most);
  }
};

inline constexpr std::uint64_t any32 = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint64_t any64 = std::numeric_limits<std::uint64_t>::max();

[[nodiscard]] inline Topology read_topology(const Node& plan) {
  constexpr std::uint64_t most_ranks = 1U << 24U;
  const std::vector<std::uint32_t> sizes = plan.at("node_sizes").numbers<std::uint32_t>(most_ranks);
  std::uint64_t ranks = 0;
  for (const std::uint32_t size : sizes) ranks += size;
  if (sizes.empty() || ranks > most_ranks) plan.at("node_sizes").refuse("expected 1 to 16777216 ranks");
  return topology(sizes, {.rails = static_cast<std::uint32_t>(plan.at("rails").number(most_ranks)),
                          .nodes_per_leaf = static_cast<std::uint32_t>(plan.at("nodes_per_leaf").number(any32))});
}

[[nodiscard]] inline PhasePlan read_phase(const Node& node, std::size_t samples, std::uint32_t ranks) {
  PhasePlan phase;
  phase.phase = node.at("phase").text();
  if (samples == 0 && node.at("sample_of").size() > 0) node.at("sample_of").refuse("the plan has no samples");
  phase.sample_of = node.at("sample_of").numbers<std::uint32_t>(samples == 0 ? 0 : samples - 1);
  if (!std::is_sorted(phase.sample_of.begin(), phase.sample_of.end())) node.at("sample_of").refuse("must ascend");
  const std::size_t items = phase.sample_of.size();
  phase.length = node.at("length").numbers_of<std::uint32_t>(items, any32);
  const auto all_or_none = [&](const char* key) {
    return node.at(key).numbers_of<std::uint32_t>(node.at(key).size() == 0 ? 0 : items, any32);
  };
  phase.output = all_or_none("output");
  phase.position = all_or_none("position");
  phase.assignment = {ranks, node.at("rank_of").numbers_of<std::uint32_t>(items, ranks - 1),
                      node.at("rank_cost").numbers_of<Cost>(ranks, any64), node.at("lower_bound").number(),
                      node.at("solver").text()};
  const Node before = node.at("imbalance_before");
  if (!before.json.is_number()) before.refuse("expected a number");
  phase.imbalance_before = before.json.get<double>();
  orch::detail::lay_out(phase, ranks);
  return phase;
}

[[nodiscard]] inline std::uint32_t phase_named(const StepPlan& plan, const Node& name) {
  for (std::uint32_t phase = 0; phase < plan.phases.size(); ++phase) {
    if (plan.phases[phase].phase == name.text()) return phase;
  }
  name.refuse("\"" + name.text() + "\" is no phase of the plan");
}

[[nodiscard]] inline Route read_route(const Node& node, const StepPlan& plan) {
  Route route;
  if (node.at("from").text() != "home") route.from = phase_named(plan, node.at("from"));
  route.to = phase_named(plan, node.at("to"));
  const std::vector<std::uint32_t> before = rank_before(plan, route);
  if (node.at("rank_before").numbers_of<std::uint32_t>(before.size(), plan.ranks() - 1) != before) {
    node.at("rank_before").refuse("differs from where the items are");
  }
  const auto after = node.at("rank_after").numbers_of<std::uint32_t>(before.size(), plan.ranks() - 1);
  const PhasePlan& items = item_phase(plan, route);
  const bool to_llm = !route.is_input() && route.to + 1 == plan.phases.size();
  if (to_llm && items.position.size() != before.size()) {
    node.at("from").refuse("\"" + items.phase + "\" lacks positions in the LLM's sequence");
  }
  for (std::size_t i = 0; i < after.size(); ++i) {
    const std::uint32_t wanted = route.is_input() ? items.assignment.rank_of[i]
                                 : to_llm         ? plan.llm().assignment.rank_of[items.sample_of[i]]
                                                  : after[i];
    if (after[i] != wanted) node.at("rank_after").refuse("differs from where the items are needed");
  }
  const Layout from = layout(before, plan.ranks());
  std::vector<Payload> payload;
  const Node fields = node.at("fields");
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const Node field = fields.at(f);
    payload.push_back(
        {{field.at("name").text(), field.at("element_bytes").number(), field.at("elements_per_length").number()},
         by_slot(from, field.at("length").numbers_of<std::uint32_t>(before.size(), any32))});
  }
  route.exchange = exchange_plan(rearrangement(from, layout(after, plan.ranks())), std::move(payload));
  const std::string schedule = node.at("schedule").text();
  if (schedule == "hierarchical") {
    route.stages = hierarchical(route.exchange, plan.topology);
  } else if (schedule != "direct") {
    node.at("schedule").refuse("\"" + schedule + "\", expected direct or hierarchical");
  }
  return route;
}

/// Counts nesting and stops above the limit, so that a hostile document cannot exhaust the stack.
class DepthGuard : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ <= deepest; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return ++depth_ <= deepest; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    message_ = error.what();
    return false;
  }
  [[nodiscard]] std::string message() const { return message_.empty() ? "nested too deeply" : message_; }

 private:
  static constexpr int deepest = 16;
  int depth_ = 0;
  std::string message_;
};

}  // namespace detail

/// Throws InvalidInput for a document that is no plan, or whose content does not have the fingerprint that it states.
[[nodiscard]] inline StepPlan step_plan_from_json(const Json& json) {
  const detail::Node node{json, ""};
  if (node.at("schema").text() != step_plan_schema) {
    node.at("schema").refuse("\"" + node.at("schema").text() + "\", expected " + step_plan_schema);
  }
  StepPlan plan;
  plan.topology = detail::read_topology(node);
  plan.samples = node.at("samples").numbers<std::uint32_t>();
  plan.home_rank = node.at("home_rank").numbers_of<std::uint32_t>(plan.samples.size(), plan.ranks() - 1);
  const detail::Node phases = node.at("phases");
  if (phases.size() == 0) phases.refuse("is empty, expected at least the llm");
  for (std::size_t p = 0; p < phases.size(); ++p) {
    plan.phases.push_back(detail::read_phase(phases.at(p), plan.samples.size(), plan.ranks()));
  }
  const PhasePlan& llm = plan.llm();
  bool one_each = llm.sample_of.size() == plan.samples.size();
  for (std::size_t i = 0; one_each && i < llm.sample_of.size(); ++i) one_each = llm.sample_of[i] == i;
  if (!one_each) phases.at(phases.size() - 1).at("sample_of").refuse("must list every sample once: the LLM comes last");
  const detail::Node routes = node.at("routes");
  for (std::size_t r = 0; r < routes.size(); ++r) plan.routes.push_back(detail::read_route(routes.at(r), plan));
  const detail::Node loss = node.at("loss");
  const auto by_rank = [&](const char* key) {
    return loss.at(key).numbers_of<std::uint64_t>(plan.ranks(), detail::any64);
  };
  plan.loss = {by_rank("tokens"), by_rank("supervised"), by_rank("samples")};
  const LossCounts counted = loss_counts(llm, plan.ranks());
  if (counted.tokens != plan.loss.tokens) loss.at("tokens").refuse("differs from the lengths in the LLM's layout");
  if (counted.samples != plan.loss.samples) loss.at("samples").refuse("differs from the LLM's layout");
  plan.hash = plan.fingerprint();
  if (node.at("plan_hash").text() != hex(plan.hash)) {
    node.at("plan_hash")
        .refuse("\"" + node.at("plan_hash").text() + "\", but the plan's content has " + hex(plan.hash));
  }
  return plan;
}

[[nodiscard]] inline std::vector<std::uint8_t> to_cbor(const Json& json) { return Json::to_cbor(json); }

/// JSON or CBOR text, told apart by the first byte. Throws InvalidInput for what is neither.
[[nodiscard]] inline Json parse_document(std::string_view bytes) {
  const auto first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) throw InvalidInput("plan: empty");
  const bool text = bytes[first] == '{';
  const auto format = text ? Json::input_format_t::json : Json::input_format_t::cbor;
  detail::DepthGuard guard;
  if (!Json::sax_parse(bytes, &guard, format)) throw InvalidInput("plan: " + guard.message());
  return text ? Json::parse(bytes) : Json::from_cbor(bytes);
}

}  // namespace orch::io
