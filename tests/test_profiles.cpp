// Laws, quantile tables, the copula and the generator of profiles.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "copula.hpp"
#include "laws.hpp"
#include "normal.hpp"
#include "orchmllm/base/hash.hpp"
#include "orchmllm/base/random.hpp"
#include "orchmllm/io/trace.hpp"
#include "profile.hpp"
#include "sample_generator.hpp"

using namespace orch;
using namespace orch::apps;

namespace {

std::string write(const std::string& text) {
  const std::string path = "test_profiles.tmp.toml";
  std::ofstream(path) << text;
  return path;
}

double mean(const Quantiles& q) {
  double sum = 0;
  constexpr int draws = 200000;
  for (int i = 0; i < draws; ++i) sum += q.at((i + 0.5) / draws);
  return sum / draws;
}

/// Spearman's rank correlation of values without ties.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ranks = [](const std::vector<double>& values) {
    std::vector<std::size_t> order(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return values[x] < values[y]; });
    std::vector<double> rank(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<double>(i);
    return rank;
  };
  const std::vector<double> x = ranks(a);
  const std::vector<double> y = ranks(b);
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  const auto n = static_cast<double>(x.size());
  return 1 - 6 * squares / (n * (n * n - 1));
}

const std::string head = "format = 2\nname = \"t\"\nsource = \"x\"\nlicense = \"x\"\n";
const std::string task = "[[task]]\nname = \"a\"\nweight = 1\nsource = \"x\"\n";

std::string draw(const std::string& profile, std::uint64_t samples, std::uint64_t seed) {
  std::string out;
  SampleGenerator(load_task_profiles(write(profile)), seed).append(0, samples, out);
  std::remove("test_profiles.tmp.toml");
  return out;
}

void refuses(const std::string& profile, const std::string& message) {
  std::string said;
  try {
    (void)draw(profile, 1, 1);
  } catch (const InvalidInput& error) {
    said = error.what();
  }
  CAPTURE(said);
  CHECK(said.find(message) != std::string::npos);
  CHECK(said.find(".toml:") != std::string::npos);
}

}  // namespace

TEST_CASE("exponential function against the C library") {
  for (double x = -700; x < 700; x += 0.37) CHECK(exp_exact(x) == doctest::Approx(std::exp(x)).epsilon(1e-14));
  CHECK(exp_exact(0) == 1);
}

TEST_CASE("normal distribution against erfc, and back") {
  for (double z = -8; z < 8; z += 0.0137) {
    const double exact = 0.5 * std::erfc(-z / std::numbers::sqrt2);
    CHECK(std::abs(normal().cdf(z) - exact) < 1e-6);
    if (z < 0) CHECK(normal().cdf(z) == doctest::Approx(exact).epsilon(2e-4));  // relative, in the tail too
  }
  for (const double u : {1e-12, 1e-3, 0.1, 0.5, 0.7, 0.999, 1 - 1e-9}) {
    CHECK(normal().cdf(normal().quantile(u)) == doctest::Approx(u).epsilon(1e-12));
  }
  CHECK(normal().quantile(0.975) == doctest::Approx(1.959964).epsilon(1e-5));
  CHECK(normal().quantile(0) == -8.5);
  CHECK(normal().cdf(100) == 1);
}

TEST_CASE("quantile tables: knots, atoms, gaps, both ends") {
  const Quantiles q({0, 0.25, 0.25, 0.5, 1}, {1, 2, 4, 4, 10});
  CHECK(q.at(0) == 1);
  CHECK(q.at(0.125) == 1.5);
  CHECK(q.at(0.25) == 4);  // the gap from 2 to 4 has no probability
  CHECK(q.at(0.4) == 4);
  CHECK(q.at(0.75) == 7);
  CHECK(q.at(1) == 10);
  CHECK(q.below(4) == 0.25);
  CHECK(q.up_to(4) == 0.5);
  CHECK(q.below(3) == 0.25);
  CHECK(q.up_to(7) == 0.75);
  CHECK(q.below(0) == 0);
  CHECK(q.up_to(11) == 1);
}

TEST_CASE("quantile tables agree with a search through all knots") {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> p{0};
    std::vector<double> v{0};
    const std::uint64_t knots = 1 + random.below(300);
    for (std::uint64_t i = 0; i < knots; ++i) {
      p.push_back(p.back() + static_cast<double>(random.below(3)));
      v.push_back(v.back() + static_cast<double>(random.below(4)));
    }
    p.push_back(p.back() + 1);
    v.push_back(v.back());
    for (double& x : p) x /= p.back();
    const Quantiles q(p, v);
    for (int i = 0; i < 200; ++i) {
      const double u = random.uniform();
      const auto right = static_cast<std::size_t>(std::upper_bound(p.begin(), p.end() - 1, u) - p.begin());
      const double slow = v[right - 1] + (u - p[right - 1]) / (p[right] - p[right - 1]) * (v[right] - v[right - 1]);
      CHECK(q.at(u) == doctest::Approx(slow).epsilon(1e-9));
    }
  }
}

TEST_CASE("laws have the moments and quantiles of the books") {
  CHECK(mean(constant_law(3)) == 3);
  CHECK(mean(uniform_law(2, 5)) == doctest::Approx(3.5));
  CHECK(mean(discrete_law({1, 2, 4}, {8, 1, 1})) == doctest::Approx(1.4).epsilon(1e-4));
  const Quantiles lognormal = lognormal_law(90, 0.8);
  CHECK(lognormal.at(0.5) == doctest::Approx(90).epsilon(1e-6));
  CHECK(lognormal.at(0.9) == doctest::Approx(90 * std::exp(0.8 * 1.2815516)).epsilon(2e-4));
  CHECK(lognormal.at(0.0001) == doctest::Approx(90 * std::exp(-0.8 * 3.7190165)).epsilon(2e-4));
  CHECK(mean(lognormal) == doctest::Approx(90 * std::exp(0.32)).epsilon(1e-3));
  const Quantiles pareto = pareto_law(8, 1.5, 4096);
  for (const double u : {0.1, 0.5, 0.9, 0.999}) {
    CHECK(pareto.at(u) == doctest::Approx(8 * std::pow(1 - u, -1 / 1.5)).epsilon(2e-4));
  }
  CHECK(pareto.at(1) == 4096);
  CHECK(1 - pareto.below(4096) == doctest::Approx(std::pow(8.0 / 4096, 1.5)).epsilon(1e-3));
}

TEST_CASE("a mixture's distribution function is the weighted sum") {
  const std::vector<Quantiles> parts{constant_law(5), uniform_law(0, 10), lognormal_law(4, 1)};
  const std::vector<double> weights{1, 2, 1};
  const Quantiles mixed = mixture(parts, weights);
  for (double v = 0.05; v < 20; v += 0.31) {
    CHECK(mixed.up_to(v) == doctest::Approx((parts[0].up_to(v) + 2 * parts[1].up_to(v) + parts[2].up_to(v)) / 4));
  }
  CHECK(mixed.up_to(5) - mixed.below(5) == doctest::Approx(0.25));
  const Quantiles cut = clamped(mixed, 2, 6);
  CHECK(cut.at(0) == 2);
  CHECK(cut.at(1) == 6);
  CHECK(cut.up_to(2) == doctest::Approx(mixed.up_to(2)));
  CHECK(cut.below(6) == doctest::Approx(mixed.below(6)));
}

TEST_CASE("Cholesky factors, and refuses what is no correlation matrix") {
  const Matrix matrix{{1, 0, 0}, {0.5, 1, 0}, {-0.3, 0.4, 1}};
  const auto lower = cholesky(matrix);
  REQUIRE(lower);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k <= j; ++k) sum += (*lower)[i][k] * (*lower)[j][k];
      CHECK(sum == doctest::Approx(matrix[i][j]));
    }
  }
  CHECK_FALSE(cholesky({{1, 0}, {1, 1}}));
  CHECK_FALSE(cholesky({{1, 0, 0}, {0.9, 1, 0}, {-0.9, 0.9, 1}}));
}

TEST_CASE("correlated quantities have their marginals and rank correlations") {
  const std::string out = draw(head + task + R"(text = { uniform = [0, 1000000] }
[task.audio]
count = { values = [1, 2], weights = [1, 1] }
seconds = { lognormal = { median = 10, sigma = 1 }, max = 3000 }
alike = 0.6
[task.correlation]
between = ["text", "audio.seconds"]
lower = [-0.7]
)",
                               40000, 3);
  const std::string path = "test_profiles.tmp.jsonl";
  std::ofstream(path) << out;
  std::vector<double> text;
  std::vector<double> first;
  std::vector<double> one;
  std::vector<double> two;
  double jitter = 0;  // against ties of milliseconds
  (void)io::read_trace(path, [&](const Sample& sample) {
    text.push_back(sample.text + (jitter += 1e-7));
    first.push_back(static_cast<double>(sample.audio[0].microseconds) + jitter);
    if (sample.audio.size() < 2) return;
    one.push_back(static_cast<double>(sample.audio[0].microseconds) + jitter);
    two.push_back(static_cast<double>(sample.audio[1].microseconds) + jitter);
  });
  std::remove(path.c_str());
  const auto spearman = [](double r) { return 6 / std::numbers::pi * std::asin(r / 2); };
  CHECK(std::abs(rank_correlation(text, first) - spearman(-0.7)) < 0.015);
  CHECK(std::abs(rank_correlation(one, two) - spearman(0.6)) < 0.02);
  CHECK(one.size() == doctest::Approx(20000).epsilon(0.02));
  std::sort(first.begin(), first.end());
  CHECK(first[20000] == doctest::Approx(1e7).epsilon(0.03));
  CHECK(first[36000] == doctest::Approx(1e7 * std::exp(1.2815516)).epsilon(0.04));
}

TEST_CASE("the same trace on every machine, however it is cut into blocks") {
  const std::string profile = head + task + R"(text = { lognormal = { median = 90, sigma = 0.8 }, min = 1, max = 8192 }
interleaved = 0.5
supervised = { uniform = [0.2, 1] }
[task.images]
count = { values = [0, 1, 4], weights = [1, 8, 1] }
pixels = { pareto = { from = 40000, alpha = 1.2 }, max = 4000000 }
aspect = { p = [0, 0.5, 1], value = [0.5, 1.333, 2] }
alike = 0.7
[task.tokens.vision]
count = { constant = 2 }
encoder = { mixture = [{ weight = 1, constant = 1024 }, { weight = 1, uniform = [100, 5000] }] }
merge = 4
[task.correlation]
between = ["text", "images.count", "images.pixels"]
lower = [0.3, 0.5, 0.1]
)";
  const std::string all = draw(profile, 3000, 9);
  CHECK(hex(Fingerprint().add_bytes(all).value()) == "bfc41e0598da2025");
  std::string parts;
  const SampleGenerator generator(load_task_profiles(write(profile)), 9);
  std::remove("test_profiles.tmp.toml");
  for (std::uint64_t begin = 0; begin < 3000; begin += 1000) generator.append(begin, begin + 1000, parts);
  CHECK(parts == all);
  CHECK(draw(profile, 3000, 10) != all);
}

TEST_CASE("profiles that are refused, with file and line") {
  const std::string text = "text = { constant = 5 }\n";
  refuses(head + task + "text = { constant = -1 }\n", "constant must be a number");
  refuses(head + task + "text = { p = [0, 0.5], value = [1, 2] }\n", "p must go from 0 to 1");
  refuses(head + task + "text = { p = [0, 0.6, 0.5, 1], value = [1, 2, 3, 4] }\n", "p must not descend");
  refuses(head + task + "text = { p = [0, 1], value = [2, 1] }\n", "value must not descend");
  refuses(head + task + "text = { constant = 1, uniform = [1, 2] }\n", "has 2 of p, values");
  refuses(head + task + "text = { }\n", "has 0 of p, values");
  refuses(head + task + "text = { constant = 1, colour = 2 }\n", "unknown key colour");
  refuses(head + task + "text = { lognormal = { median = 9, sigma = 9 } }\n", "must lie from");
  refuses(head + task + "text = { pareto = { from = 9, alpha = 1 } }\n", "max is missing");
  refuses(head + task + "text = { mixture = [] }\n", "1 to 64 parts");
  refuses(head + task + "text = { values = [2, 1], weights = [1, 1] }\n", "values must ascend");
  refuses(head + task + text + "[task.correlation]\nbetween = [\"text\", \"images.pixels\"]\nlower = [0.5]\n",
          "names \"images.pixels\", expected one of text, supervised");
  const std::string audio = "[task.audio]\ncount = { constant = 1 }\nseconds = { uniform = [1, 2] }\n";
  const std::string between = "[task.correlation]\nbetween = [\"text\", \"audio.count\", \"audio.seconds\"]\n";
  refuses(head + task + text + audio + between + "lower = [0.9, 0.9, -0.9]\n", "not positive definite");
  refuses(head + task + text + audio + between + "lower = [0.9]\n", "has 1 entries, must have 3");
  refuses(head + task + text + audio + between + "lower = [0.9, 0.1, 1]\n", "above -1 and below 1");
  refuses(head + task + text + "[task.video]\ncount = { constant = 1 }\n", "frames or seconds must be given");
  refuses(head + task + text + "[task.tokens.\"a b\"]\ncount = { constant = 1 }\n", "a b is no phase");
  refuses(head, "at least one entry");
}
