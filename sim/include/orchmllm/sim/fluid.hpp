// Fluid flows over shared links: every flow has a rate, and the rates are max-min fair at every instant.
//
// A flow carries a volume over a path of links (max_min.hpp: paths, weights, caps, fairness). Rates change only when
// flows start or end. All starts and ends of an instant are one change, and only what is connected with them through
// shared links is filled anew.
// Thousands of flows that end one by one would need as many of these fillings. A flow with `linger` is filled in at its
// end only for the flows that it shared an uncrowded link with; their other links bound what they gain. (On a link of
// more than 64 classes its share, less than 1/64, stays idle.) All others adapt within `linger`. No link is ever
// overfull by that. Without linger rates are exact, and starts are always filled in at once.
// Time is in integer nanoseconds. A flow ends at the first whole nanosecond by which its volume is through.
// Complexity: a filling is O(paths + L log L) for the L links that are connected with the change and the sum of their
// classes' path lengths; a flow's start and end are O(path + log flows) beside that. Guarantee: the same calls give the
// same times and rates, bit for bit.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "orchmllm/sim/engine.hpp"
#include "orchmllm/sim/max_min.hpp"

namespace orch::sim {

using FlowId = std::uint32_t;

struct Flow {
  double volume = 0;                                     ///< bytes
  std::span<const LinkUse> path{};                       ///< weights from 0.001 to 1000
  double cap = std::numeric_limits<double>::infinity();  ///< bytes/s
  Nanoseconds linger = 0;  ///< flows that it shares no uncrowded link with may adapt so long after its end
};

struct Completion {
  Nanoseconds time = 0;
  FlowId flow = 0;

  friend bool operator==(const Completion&, const Completion&) = default;
};

/// Inside a discrete-event loop: `advance` to the instant, `start` what starts then, ask for the `next_event`.
class FluidNetwork {
 public:
  /// Throws InvalidInput unless the bandwidth is positive and finite.
  LinkId add_link(double bytes_per_second);

  /// Flows are numbered from 0 in the order of these calls; `at` is now or later. Throws InvalidInput for a time in the
  /// past, a volume that is no finite number of at least 0, an empty path, an unknown link, a weight out of range, a
  /// cap that is not positive.
  FlowId start(Nanoseconds at, const Flow& flow);

  /// When something happens next: a flow starts or ends, or rates adapt. None if all is quiet. The changes up to `now`
  /// are filled in by this, so ask when all flows of an instant have been started.
  [[nodiscard]] std::optional<Nanoseconds> next_event();

  /// Flows that end by `to`, by time, then number. Throws InvalidInput if `to` is in the past, or a flow is so slow
  /// that it would end after 30 years.
  std::vector<Completion> advance(Nanoseconds to);

  [[nodiscard]] Nanoseconds now() const { return now_; }
  [[nodiscard]] std::uint32_t links() const { return static_cast<std::uint32_t>(links_.size()); }
  /// Bytes/s from now on; 0 before a flow's start and after its end.
  [[nodiscard]] double rate(FlowId flow);
  /// Bytes that ended flows have put on the link.
  [[nodiscard]] double carried(LinkId link) const { return links_[link].carried; }
  /// How often everything that is connected with a change was filled anew.
  [[nodiscard]] std::uint64_t fillings() const { return fillings_; }

 private:
  static constexpr Nanoseconds never = ~Nanoseconds{0};
  static constexpr ClassId no_class = ~ClassId{0};

  struct Member {
    double target = 0;  ///< what its class has served when it ends
    FlowId flow = 0;
    double volume = 0;
    Nanoseconds linger = 0;
    [[nodiscard]] bool operator>(const Member& other) const {
      return target != other.target ? target > other.target : flow > other.flow;
    }
  };

  /// Flows of one path and cap have one rate.
  struct Class {
    std::uint32_t path = 0;  ///< its first use in `paths_`
    std::uint32_t length = 0;
    double cap = 0;               ///< bytes per nanosecond
    std::uint64_t key = 0;        ///< of path and cap
    bool listed = false;          ///< its links know it
    std::uint32_t waiting = 0;    ///< flows that start later
    Nanoseconds due = never;      ///< when its change must be filled in for all that is connected
    std::vector<Member> members;  ///< heap, first end on top
  };
  /// What changes with every filling, apart from the rest.
  struct Service {
    double rate = 0;    ///< bytes per nanosecond
    double served = 0;  ///< bytes that a member since the beginning has had until `since`
    Nanoseconds since = 0;
    double target = 0;         ///< of the first member
    Nanoseconds ends = never;  ///< of the first member
  };
  struct Link {
    double capacity = 0;           ///< bytes per nanosecond
    double used = 0;               ///< of it
    double carried = 0;            ///< bytes
    std::vector<ClassId> classes;  ///< also those that have ended since all was last filled
  };
  struct Start {
    Nanoseconds at = 0;
    ClassId of = 0;
    Member member;
    [[nodiscard]] bool operator>(const Start& other) const {
      return at != other.at ? at > other.at : member.flow > other.member.flow;
    }
  };
  struct End {
    Nanoseconds at = 0;
    ClassId of = 0;
    [[nodiscard]] bool operator>(const End& other) const { return at != other.at ? at > other.at : of > other.of; }
  };

  [[nodiscard]] ClassId class_of(const Flow& flow);
  [[nodiscard]] std::span<const LinkUse> path(ClassId of) const {
    return {paths_.data() + classes_[of].path, classes_[of].length};
  }
  void begin(ClassId of, Member member);
  void end_members(ClassId of, std::vector<Completion>& ended);
  void happen(std::vector<Completion>& ended);
  void change(ClassId of, Nanoseconds due);
  void serve(Service& service) const;
  [[nodiscard]] static Nanoseconds end_of(const Service& service);
  [[nodiscard]] bool outdated(const End& end) const { return services_[end.of].ends != end.at; }

  void settle();
  void fill_connected();
  void fill_nearby();
  bool reach(ClassId of);
  void fill();
  void forget_changes();

  Nanoseconds now_ = 0;
  std::vector<Link> links_;
  std::vector<Class> classes_;
  std::vector<Service> services_;  ///< by class
  std::vector<LinkUse> paths_;
  std::unordered_map<std::uint32_t, std::vector<ClassId>> free_;  ///< length → classes that nothing refers to
  std::unordered_multimap<std::uint64_t, ClassId> by_key_;        ///< the others
  std::vector<ClassId> class_of_flow_;                            ///< of those that flow
  std::priority_queue<Start, std::vector<Start>, std::greater<>> starts_;
  std::vector<End> ends_;         ///< heap, first end on top; an entry may be out of date
  std::vector<ClassId> changed_;  ///< classes whose change is not filled in for all that is connected
  Nanoseconds next_due_ = never;  ///< the smallest `due` of them
  std::vector<ClassId> ended_;    ///< classes that have lost members in this instant
  MaxMinFilling filling_;
  std::uint64_t fillings_ = 0;
};

}  // namespace orch::sim
