#include "orchmllm/sim/max_min.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace orch::sim {

namespace {

constexpr std::uint32_t none = ~0U;

/// Links whose levels differ by less fill up together: rounding must not tell apart what is alike.
constexpr double tie = 1 + 1e-9;

}  // namespace

void MaxMinFilling::clear() {
  ++filling_;
  added_links_.clear();
  added_classes_.clear();
  uses_.clear();
}

void MaxMinFilling::add_link(LinkId id) {
  if (id >= links_.size()) links_.resize(std::size_t{id} + 1);
  Link& link = links_[id];
  if (link.filling == filling_) return;
  link = {.last_use = none, .filling = filling_};
  added_links_.push_back(id);
}

bool MaxMinFilling::add_class(ClassId of, std::uint32_t flows, double cap, std::span<const LinkUse> path) {
  if (has_class(of)) return false;
  if (of >= classes_.size()) classes_.resize(std::size_t{of} + 1);
  classes_[of] = {path.data(), static_cast<std::uint32_t>(path.size()), flows, cap, 0, filling_};
  for (const LinkUse& use : path) add_link(use.link);
  if (flows == 0) return true;
  added_classes_.push_back(of);
  for (const LinkUse& use : path) {
    Link& link = links_[use.link];
    link.weight += flows * use.weight;
    ++link.growing;
    uses_.push_back({of, std::exchange(link.last_use, static_cast<std::uint32_t>(uses_.size()))});
  }
  return true;
}

void MaxMinFilling::fill() {
  lowest_.clear();
  for (const LinkId id : added_links_) {
    const Link& link = links_[id];
    if (link.growing > 0) lowest_.push_back({link.left / link.weight, id});
  }
  std::make_heap(lowest_.begin(), lowest_.end(), std::greater<>());
  capped_.clear();
  for (const ClassId of : added_classes_) {
    if (std::isfinite(classes_[of].cap)) capped_.push_back(of);
  }
  std::stable_sort(capped_.begin(), capped_.end(),
                   [&](ClassId a, ClassId b) { return classes_[a].cap < classes_[b].cap; });

  growing_ = added_classes_.size();
  auto capped = capped_.begin();
  double level = std::numeric_limits<double>::min();  // rounding must not bring a flow to a halt
  while (growing_ > 0) {
    double next = find_lowest() ? lowest_.front().level : std::numeric_limits<double>::infinity();
    if (capped != capped_.end()) next = std::min(next, classes_[*capped].cap);
    level = std::max(level, next);
    // All links that are full at this level, before what stops there changes their sums.
    full_.clear();
    while (find_lowest() && lowest_.front().level <= level * tie) {
      full_.push_back(lowest_.front().link);
      pop_lowest();
    }
    for (; capped != capped_.end() && classes_[*capped].cap <= level * tie; ++capped) stop(*capped, level);
    for (const LinkId link : full_) {
      for (std::uint32_t use = links_[link].last_use; use != none; use = uses_[use].previous)
        stop(uses_[use].of, level);
    }
  }
}

/// Brings the link with the lowest level to the top. What stops below a link's level raises it, so the top is the
/// lowest as soon as its own level is up to date.
bool MaxMinFilling::find_lowest() {
  while (!lowest_.empty()) {
    const Full top = lowest_.front();
    const Link& link = links_[top.link];
    const double level = link.left / link.weight;
    if (link.growing > 0 && !(level > top.level)) return true;
    pop_lowest();
    if (link.growing == 0) continue;
    lowest_.push_back({level, top.link});
    std::push_heap(lowest_.begin(), lowest_.end(), std::greater<>());
  }
  return false;
}

void MaxMinFilling::pop_lowest() {
  std::pop_heap(lowest_.begin(), lowest_.end(), std::greater<>());
  lowest_.pop_back();
}

void MaxMinFilling::stop(ClassId of, double rate) {
  Class& group = classes_[of];
  if (group.rate > 0) return;
  group.rate = rate;
  --growing_;
  for (std::uint32_t i = 0; i < group.length; ++i) {
    Link& link = links_[group.path[i].link];
    const double weight = group.flows * group.path[i].weight;
    link.left -= weight * rate;
    link.weight -= weight;
    --link.growing;
  }
}

}  // namespace orch::sim
