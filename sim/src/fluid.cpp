#include "orchmllm/sim/fluid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "orchmllm/base/error.hpp"
#include "orchmllm/base/hash.hpp"

namespace orch::sim {

namespace {

constexpr double giga = 1e9;  // bytes/s are bytes per nanosecond times this

/// On links of more classes a share that stays idle is small, and the others are many.
constexpr std::size_t crowd = 64;

bool positive(double value) { return value > 0 && std::isfinite(value); }

std::uint64_t key_of(const Flow& flow) {
  Fingerprint print;
  print.add(std::bit_cast<std::uint64_t>(flow.cap));
  for (const LinkUse& use : flow.path) print.add(use.link).add(std::bit_cast<std::uint64_t>(use.weight));
  return print.value();
}

}  // namespace

LinkId FluidNetwork::add_link(double bytes_per_second) {
  if (!positive(bytes_per_second)) {
    throw InvalidInput(fmt::format("a link of {} bytes/s, must be positive", bytes_per_second));
  }
  links_.emplace_back().capacity = bytes_per_second / giga;
  return static_cast<LinkId>(links_.size() - 1);
}

// --- flows start and end ----------------------------------------------------------------------------------------

FlowId FluidNetwork::start(Nanoseconds at, const Flow& flow) {
  if (at < now_) throw InvalidInput(fmt::format("a flow starts at {} ns, but it is {} ns already", at, now_));
  if (!(flow.volume >= 0) || !std::isfinite(flow.volume)) {
    throw InvalidInput(fmt::format("a flow of {} bytes, must be at least 0", flow.volume));
  }
  if (flow.path.empty()) throw InvalidInput("a flow needs at least one link");
  for (const LinkUse& use : flow.path) {
    if (use.link >= links_.size())
      throw InvalidInput(fmt::format("a flow over link {} of {}", use.link, links_.size()));
    if (!(use.weight >= 1e-3 && use.weight <= 1e3)) {  // sums of them must not lose the small ones
      throw InvalidInput(fmt::format("a flow's weight of {}, must be 0.001 to 1000", use.weight));
    }
  }
  if (!(flow.cap > 0)) throw InvalidInput(fmt::format("a flow's cap of {} bytes/s, must be positive", flow.cap));

  const auto id = static_cast<FlowId>(class_of_flow_.size());
  class_of_flow_.push_back(no_class);
  const ClassId of = class_of(flow);
  const Member member{0, id, flow.volume, flow.linger};
  if (at == now_) {
    begin(of, member);
  } else {
    ++classes_[of].waiting;
    starts_.push({at, of, member});
  }
  return id;
}

ClassId FluidNetwork::class_of(const Flow& flow) {
  const std::uint64_t key = key_of(flow);
  const double cap = flow.cap / giga;
  const auto [begin, end] = by_key_.equal_range(key);
  for (auto it = begin; it != end; ++it) {
    if (classes_[it->second].cap == cap && std::ranges::equal(path(it->second), flow.path)) return it->second;
  }
  const auto length = static_cast<std::uint32_t>(flow.path.size());
  std::vector<ClassId>& free = free_[length];
  if (free.empty()) {
    free.push_back(static_cast<ClassId>(classes_.size()));
    classes_.emplace_back().path = static_cast<std::uint32_t>(paths_.size());
    classes_.back().length = length;
    paths_.resize(paths_.size() + length);
    services_.emplace_back();
  }
  const ClassId of = free.back();
  free.pop_back();
  std::ranges::copy(flow.path, paths_.begin() + classes_[of].path);
  classes_[of].cap = cap;
  classes_[of].key = key;
  by_key_.emplace(key, of);
  return of;
}

void FluidNetwork::begin(ClassId of, Member member) {
  Class& group = classes_[of];
  Service& service = services_[of];
  if (!group.listed) {
    for (const LinkUse& use : path(of)) links_[use.link].classes.push_back(of);
    group.listed = true;
    service.rate = 0;
  }
  serve(service);
  if (group.members.empty()) service.served = 0;
  member.target = service.served + member.volume;
  group.members.push_back(member);
  std::push_heap(group.members.begin(), group.members.end(), std::greater<>());
  service.target = group.members.front().target;
  service.ends = never;  // known after the filling
  class_of_flow_[member.flow] = of;
  change(of, now_);
}

void FluidNetwork::end_members(ClassId of, std::vector<Completion>& ended) {
  Class& group = classes_[of];
  Service& service = services_[of];
  Nanoseconds due = never;
  while (service.ends <= now_) {
    std::pop_heap(group.members.begin(), group.members.end(), std::greater<>());
    const Member member = group.members.back();
    group.members.pop_back();
    for (const LinkUse& use : path(of)) {
      links_[use.link].carried += member.volume * use.weight;
      links_[use.link].used -= service.rate * use.weight;
    }
    class_of_flow_[member.flow] = no_class;
    ended.push_back({now_, member.flow});
    due = std::min(due, now_ + member.linger);
    service.ends = never;
    if (group.members.empty()) break;
    service.target = group.members.front().target;
    service.ends = end_of(service);
  }
  if (service.ends != never) {
    ends_.push_back({service.ends, of});
    std::push_heap(ends_.begin(), ends_.end(), std::greater<>());
  }
  change(of, due);
  ended_.push_back(of);
}

void FluidNetwork::change(ClassId of, Nanoseconds due) {
  Class& group = classes_[of];
  if (group.due == never) changed_.push_back(of);
  group.due = std::min(group.due, due);
  next_due_ = std::min(next_due_, group.due);
}

void FluidNetwork::serve(Service& service) const {
  service.served += service.rate * static_cast<double>(now_ - service.since);
  service.since = now_;
}

/// Computed afresh from what was served at the last change of rate, so that nothing adds up.
Nanoseconds FluidNetwork::end_of(const Service& service) {
  const double wait = std::ceil(std::max(service.target - service.served, 0.0) / service.rate);
  if (!(wait < 1e18)) {
    throw InvalidInput(fmt::format("a flow at {} bytes/s takes longer than can be simulated", service.rate * giga));
  }
  return service.since + static_cast<Nanoseconds>(wait);
}

// --- time -------------------------------------------------------------------------------------------------------

std::optional<Nanoseconds> FluidNetwork::next_event() {
  settle();
  while (!ends_.empty() && outdated(ends_.front())) {
    std::pop_heap(ends_.begin(), ends_.end(), std::greater<>());
    ends_.pop_back();
  }
  Nanoseconds next = next_due_;
  if (!ends_.empty()) next = std::min(next, ends_.front().at);
  if (!starts_.empty()) next = std::min(next, starts_.top().at);
  if (next == never) return std::nullopt;
  return next;
}

std::vector<Completion> FluidNetwork::advance(Nanoseconds to) {
  if (to < now_) throw InvalidInput(fmt::format("back to {} ns, but it is {} ns already", to, now_));
  std::vector<Completion> ended;
  happen(ended);
  while (now_ < to) {
    now_ = std::min(next_event().value_or(never), to);
    happen(ended);
  }
  return ended;
}

/// Ends, then starts of the instant.
void FluidNetwork::happen(std::vector<Completion>& ended) {
  const auto before = static_cast<std::ptrdiff_t>(ended.size());
  while (!ends_.empty() && ends_.front().at <= now_) {
    const End end = ends_.front();
    std::pop_heap(ends_.begin(), ends_.end(), std::greater<>());
    ends_.pop_back();
    if (!outdated(end)) end_members(end.of, ended);
  }
  std::sort(ended.begin() + before, ended.end(), [](const auto& a, const auto& b) { return a.flow < b.flow; });
  while (!starts_.empty() && starts_.top().at <= now_) {
    const Start start = starts_.top();
    starts_.pop();
    --classes_[start.of].waiting;
    begin(start.of, start.member);
  }
}

double FluidNetwork::rate(FlowId flow) {
  settle();
  const ClassId of = class_of_flow_.at(flow);
  return of == no_class ? 0 : services_[of].rate * giga;
}

// --- rates ------------------------------------------------------------------------------------------------------

void FluidNetwork::settle() {
  if (next_due_ <= now_) fill_connected();
  if (!ended_.empty()) fill_nearby();
}

/// Everything that is connected, through shared links, with a change that is due.
void FluidNetwork::fill_connected() {
  ++fillings_;
  filling_.clear();
  for (const ClassId of : changed_) {
    if (classes_[of].due <= now_) (void)reach(of);
  }
  for (std::size_t i = 0; i < filling_.links().size(); ++i) {
    std::erase_if(links_[filling_.links()[i]].classes, [&](ClassId of) {
      (void)reach(of);
      return classes_[of].members.empty();
    });
  }
  for (const LinkId link : filling_.links()) links_[link].used = 0;
  fill();
  forget_changes();
  std::erase_if(ended_, [&](ClassId of) { return filling_.has_class(of); });
}

/// Those that shared an uncrowded link with what has ended. All others keep their rates.
void FluidNetwork::fill_nearby() {
  filling_.clear();
  for (const ClassId of : ended_) {
    for (const LinkUse& use : path(of)) {
      if (links_[use.link].classes.size() <= crowd) filling_.add_link(use.link);
    }
  }
  ended_.clear();
  const std::size_t uncrowded = filling_.links().size();
  for (std::size_t i = 0; i < uncrowded; ++i) {
    for (const ClassId near : links_[filling_.links()[i]].classes) {
      if (!reach(near)) continue;
      const double rate = services_[near].rate * static_cast<double>(classes_[near].members.size());
      for (const LinkUse& use : path(near)) links_[use.link].used -= rate * use.weight;
    }
  }
  fill();
}

bool FluidNetwork::reach(ClassId of) {
  const Class& group = classes_[of];
  return filling_.add_class(of, static_cast<std::uint32_t>(group.members.size()), group.cap, path(of));
}

/// Deals out what is unused of the reached links.
void FluidNetwork::fill() {
  for (const LinkId link : filling_.links()) filling_.left(link) = links_[link].capacity - links_[link].used;
  filling_.fill();
  for (const LinkId link : filling_.links()) links_[link].used = links_[link].capacity - filling_.left(link);

  const std::size_t before = ends_.size();
  for (const ClassId of : filling_.classes()) {
    Service& service = services_[of];
    if (service.rate == filling_.rate(of) && service.ends != never) continue;
    serve(service);
    service.rate = filling_.rate(of);
    service.ends = end_of(service);
    ends_.push_back({service.ends, of});
  }
  if (ends_.size() - before > before / 8 || ends_.size() > 4 * classes_.size()) {
    std::erase_if(ends_, [&](const End& end) { return outdated(end); });
    std::make_heap(ends_.begin(), ends_.end(), std::greater<>());
    return;
  }
  for (std::size_t size = before + 1; size <= ends_.size(); ++size) {
    std::push_heap(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(size), std::greater<>());
  }
}

/// The changes that the filling has reached.
void FluidNetwork::forget_changes() {
  next_due_ = never;
  std::erase_if(changed_, [&](ClassId of) {
    Class& group = classes_[of];
    if (!filling_.has_class(of)) {
      next_due_ = std::min(next_due_, group.due);
      return false;
    }
    group.due = never;
    if (!group.members.empty()) return true;
    group.listed = false;
    if (group.waiting > 0) return true;
    const auto [begin, end] = by_key_.equal_range(group.key);
    by_key_.erase(std::find_if(begin, end, [&](const auto& known) { return known.second == of; }));
    free_[group.length].push_back(of);
    return true;
  });
}

}  // namespace orch::sim
