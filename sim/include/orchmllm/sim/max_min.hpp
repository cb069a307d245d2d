// Max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2).
//
// All flows grow alike until a link is full or a flow is at its cap; what is stopped keeps its rate, the others grow
// on. So no flow can gain without taking from one that is no faster. On each link of its path a flow takes `weight`
// times its rate. Flows of one path and cap are one class. Any unit of rate. Complexity: O(paths + L log L) for L links
// and the sum of the classes' path lengths; `clear` is O(1), so that small fillings of large networks are cheap.
// Guarantee: sums run in the order of adding, so the same calls give the same rates, bit for bit.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace orch::sim {

using LinkId = std::uint32_t;
using ClassId = std::uint32_t;

struct LinkUse {
  LinkId link = 0;
  double weight = 1;  ///< bytes on the link for each byte of the flow

  friend bool operator==(const LinkUse&, const LinkUse&) = default;
};

/// Links and classes have numbers of the caller's, from 0.
class MaxMinFilling {
 public:
  /// Forgets all links and classes.
  void clear();
  void add_link(LinkId link);
  /// With the links of its path, which must stay where it is until the rates are known. False if the class is known.
  /// A class without flows is known, but has no rate.
  bool add_class(ClassId of, std::uint32_t flows, double cap, std::span<const LinkUse> path);

  /// In the order of adding.
  [[nodiscard]] std::span<const LinkId> links() const { return added_links_; }
  [[nodiscard]] bool has_class(ClassId of) const { return of < classes_.size() && classes_[of].filling == filling_; }
  /// Those with flows, in the order of adding.
  [[nodiscard]] std::span<const ClassId> classes() const { return added_classes_; }

  /// Of an added link: before the filling what is to be dealt out, afterwards what is left.
  [[nodiscard]] double& left(LinkId link) { return links_[link].left; }
  void fill();
  /// Of each flow of an added class.
  [[nodiscard]] double rate(ClassId of) const { return classes_[of].rate; }

 private:
  struct Link {
    double left = 0;
    double weight = 0;           ///< of the flows that still grow
    std::uint32_t growing = 0;   ///< classes that still grow
    std::uint32_t last_use = 0;  ///< in `uses_`
    std::uint32_t filling = 0;   ///< the last one that it was added to
  };
  struct Class {
    const LinkUse* path = nullptr;
    std::uint32_t length = 0;
    std::uint32_t flows = 0;
    double cap = 0;
    double rate = 0;  ///< 0 while it grows
    std::uint32_t filling = 0;
  };
  struct Use {
    ClassId of = 0;
    std::uint32_t previous = 0;  ///< on the same link
  };
  /// A link is full when all that grow on it have come to this level. It may have risen since.
  struct Full {
    double level = 0;
    LinkId link = 0;
    [[nodiscard]] bool operator>(const Full& other) const {
      return level != other.level ? level > other.level : link > other.link;
    }
  };

  [[nodiscard]] bool find_lowest();
  void pop_lowest();
  void stop(ClassId of, double rate);

  std::uint32_t filling_ = 1;
  std::vector<Link> links_;
  std::vector<Class> classes_;
  std::vector<LinkId> added_links_;
  std::vector<ClassId> added_classes_;
  std::vector<Use> uses_;
  std::vector<ClassId> capped_;  ///< by cap
  std::vector<Full> lowest_;     ///< heap
  std::vector<LinkId> full_;
  std::size_t growing_ = 0;  ///< classes
};

}  // namespace orch::sim
