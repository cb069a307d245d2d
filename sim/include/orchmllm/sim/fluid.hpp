// Fluid flows over shared links: every flow has a rate, and the rates are max-min fair at every instant.
//
// A flow carries a volume over a path of links; on each it puts `weight` bytes per byte of its own. Rates come from
// progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): all flows grow alike until a link is full
// or a flow is at its cap; what is stopped keeps its rate, the others grow on. So no flow can gain without taking from
// one that is no faster. Rates change only when flows start or end. All starts and ends of an instant are one change,
// and only what is connected with them through shared links is filled anew.
// Many flows that end at many instants cost many fillings. The share of a flow may therefore stay unused for a time
// after its end (`linger`); the next filling there deals out all that was left. No link is ever overfull by that; what
// follows is late by the time for which shares lie idle. Without linger the rates are exact.
// Time is in integer nanoseconds. A flow ends at the first whole nanosecond by which its volume is through.
// Complexity: flows of one path and cap are one class. A filling is O(paths + L log L + E) for the L links that are
// connected with the change, the sum of their classes' path lengths, and the E ends that are pending anywhere; a
// flow's start and end are O(path + log flows). Guarantee: the same calls give the same times and rates, bit for bit.
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

namespace orch::sim {

using LinkId = std::uint32_t;
using FlowId = std::uint32_t;

struct LinkUse {
  LinkId link = 0;
  double weight = 1;  ///< bytes on the link for each byte of the flow, 0.001 to 1000

  friend bool operator==(const LinkUse&, const LinkUse&) = default;
};

struct Flow {
  double volume = 0;  ///< bytes
  std::span<const LinkUse> path{};
  double cap = std::numeric_limits<double>::infinity();  ///< bytes/s
  Nanoseconds linger = 0;  ///< its share of the links may stay unused for so long after its end
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

  /// When something happens next: a flow starts or ends, or idle shares are dealt out. None if all is quiet. The
  /// changes up to `now` are filled in by this, so ask when all flows of an instant have been started.
  [[nodiscard]] std::optional<Nanoseconds> next_event();

  /// Flows that end by `to`, by time, then number. Throws InvalidInput if `to` is in the past, or a flow is so slow
  /// that it would end after 30 years.
  std::vector<Completion> advance(Nanoseconds to);

  [[nodiscard]] Nanoseconds now() const { return now_; }
  [[nodiscard]] std::uint32_t links() const { return static_cast<std::uint32_t>(links_.size()); }
  /// Bytes/s from now on; 0 before a flow's start and after its end.
  [[nodiscard]] double rate(FlowId flow);
  /// Bytes that ended flows have put on the link.
  [[nodiscard]] double carried(LinkId link) const { return carried_[link]; }
  /// How often rates were recomputed.
  [[nodiscard]] std::uint64_t fillings() const { return fillings_; }

 private:
  using ClassId = std::uint32_t;
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

  /// Flows of one path and cap have one rate. What a filling reads of every class is kept small and apart.
  struct Class {
    bool listed = false;          ///< its links know it
    std::uint32_t waiting = 0;    ///< flows that start later
    double cap = 0;               ///< bytes per nanosecond
    std::uint64_t key = 0;        ///< of path and cap
    Nanoseconds due = never;      ///< when its change must be filled in
    std::vector<Member> members;  ///< heap, first end on top
  };
  struct Service {
    double rate = 0;    ///< bytes per nanosecond
    double served = 0;  ///< bytes that a member since the beginning has had until `since`
    Nanoseconds since = 0;
    double target = 0;         ///< of the first member
    Nanoseconds ends = never;  ///< of the first member
  };
  struct Mark {
    std::uint32_t filling = 0;  ///< the last one that reached it
    std::uint32_t members = 0;
    std::uint32_t path = 0;    ///< its first use in `paths_`
    std::uint32_t length = 0;  ///< uses in its path
  };

  struct Link {
    double capacity = 0;  ///< bytes per nanosecond
    // Of the last filling that reached it:
    double left = 0;            ///< capacity that is not given to stopped flows
    double weight = 0;          ///< of the flows that still grow
    std::uint32_t growing = 0;  ///< classes that still grow
    std::uint32_t filling = 0;
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

  /// A link is full when all flows that grow on it have come to this level, bytes per nanosecond.
  struct Full {
    double level = 0;
    LinkId link = 0;
    [[nodiscard]] bool operator>(const Full& other) const {
      return level != other.level ? level > other.level : link > other.link;
    }
  };

  [[nodiscard]] ClassId class_of(const Flow& flow);
  [[nodiscard]] std::span<const LinkUse> path(ClassId of) const {
    return {paths_.data() + marks_[of].path, marks_[of].length};
  }
  void begin(ClassId of, Member member);
  void end_members(ClassId of, std::vector<Completion>& ended);
  void happen(std::vector<Completion>& ended);
  void change(ClassId of, Nanoseconds due);
  void serve(Service& service) const;
  [[nodiscard]] static Nanoseconds end_of(const Service& service);
  [[nodiscard]] bool outdated(const End& end) const { return services_[end.of].ends != end.at; }

  void fill_if_due();
  void reach(LinkId link);
  void reach_connected();
  void fill();
  [[nodiscard]] bool find_lowest();
  void stop(ClassId of, double level);
  void apply_rates();
  void forget_changes();

  Nanoseconds now_ = 0;
  std::vector<Link> links_;
  std::vector<double> carried_;                   ///< link → bytes
  std::vector<std::vector<ClassId>> classes_on_;  ///< link → classes, also those that ended since its last filling
  std::vector<Class> classes_;
  std::vector<Service> services_;  ///< by class
  std::vector<Mark> marks_;        ///< by class
  std::vector<double> level_;      ///< by class; what the filling gives it, 0 while it grows
  std::vector<LinkUse> paths_;
  std::unordered_map<std::uint32_t, std::vector<ClassId>> free_;  ///< length → classes that nothing refers to
  std::unordered_multimap<std::uint64_t, ClassId> by_key_;        ///< the others
  std::vector<ClassId> class_of_flow_;                            ///< of those that flow
  std::priority_queue<Start, std::vector<Start>, std::greater<>> starts_;
  std::vector<End> ends_;         ///< heap, first end on top; an entry may be out of date
  std::vector<ClassId> changed_;  ///< classes whose change is not filled in yet
  Nanoseconds next_due_ = never;  ///< the smallest `due` of them
  std::uint32_t fillings_ = 0;

  // Scratch of a filling:
  std::vector<LinkId> reached_links_;
  std::vector<ClassId> reached_classes_;
  std::vector<ClassId> capped_;  ///< of the reached classes, by cap
  std::vector<Full> lowest_;     ///< heap of the reached links; a level may have risen since
  std::vector<LinkId> full_;
  std::size_t growing_ = 0;  ///< classes
};

}  // namespace orch::sim
