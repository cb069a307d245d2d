// Shipped model files: all of them load, and have as many parameters as is published for them.
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include "orchmllm/model/flops.hpp"
#include "orchmllm/sim/model_file.hpp"

using namespace orch;
namespace fs = std::filesystem;

namespace {

struct Published {
  double parameters;
  double half_unit;      ///< of the last digit published; 0: all digits are
  double positions = 0;  ///< learned position embeddings, which parameters() leaves out, in tokens
};

// Sources: the model files. gpt-*b of 4,096 positions: the names are rounded counts, 1.7b a
// cut one. mpt-*: counts of the rows with sequences of 2,048.
const std::map<std::string, Published> published{
    {"mllm-10b", {10e9, 0.5e9}},
    {"mllm-18b", {18e9, 0.5e9}},
    {"mllm-84b", {84e9, 0.5e9}},
    {"llama3-8b", {8.03e9, 0.005e9}},
    {"llama3-70b", {70.6e9, 0.05e9}},
    {"llama3-405b", {406e9, 0.5e9}},
    {"llama2-13b", {13.0e9, 0.05e9}},
    {"llama2-70b", {69.0e9, 0.05e9}},
    {"qwen2.5-7b", {7.62e9, 0.005e9}},
    {"qwen2.5-32b", {32.8e9, 0.05e9}},
    {"gpt3-175b", {174.6e9, 0.05e9, 2048}},
    {"gpt-22b", {22e9, 0.5e9, 2048}},
    {"gpt-530b", {529.6e9, 0.05e9, 2048}},
    {"gpt-1t", {1008.0e9, 0.05e9, 2048}},
    {"gpt-1.7b", {1.7e9, 0.1e9, 4096}},
    {"gpt-16b", {16e9, 0.5e9, 4096}},
    {"gpt-32b", {32e9, 0.5e9, 4096}},
    {"gpt-119b", {119e9, 0.5e9, 4096}},
    {"gpt-177b", {177e9, 0.5e9, 4096}},
    {"gpt-462b", {462e9, 0.5e9, 4096}},
    {"nemotron4-15b", {15.7e9, 0.1e9}},
    {"nemotron4-340b", {341.0e9, 0.1e9}},
    {"mpt-760m", {760470528.0, 0, 2048}},
    {"mpt-1b", {1315950592.0, 0, 2048}},
    {"mpt-3b", {2651837440.0, 0, 2048}},
    {"mpt-7b", {6658859008.0, 0, 2048}},
    {"mpt-13b", {12853954560.0, 0, 2048}},
    {"mpt-30b", {29975214080.0, 0, 2048}},
    {"mpt-70b", {64862437376.0, 0, 2048}},
};

}  // namespace

TEST_CASE("every shipped model loads and has the published number of parameters") {
  std::size_t seen = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(ORCHMLLM_SOURCE_DIR) / "sim" / "models")) {
    const std::string name = entry.path().stem().string();
    CAPTURE(name);
    const Mllm model = sim::load_model(entry.path().string());
    CHECK(model.name == name);
    REQUIRE(published.contains(name));
    const Published& expected = published.at(name);
    const double positions = expected.positions * static_cast<double>(model.llm.hidden);
    const double difference = static_cast<double>(parameters(model)) + positions - expected.parameters;
    CHECK(std::abs(difference) <= expected.half_unit);
    ++seen;
  }
  CHECK(seen == published.size());
}

TEST_CASE("a model without encoders is a text model") {
  const Mllm model = sim::load_model(std::string(ORCHMLLM_SOURCE_DIR) + "/sim/models/llama3-8b.toml");
  CHECK(model.encoders.empty());
  CHECK(parameters(model) == parameters(model.llm));
}
