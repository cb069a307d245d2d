#include <numeric>

#include "instances.hpp"
#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/exchange/rearrangement.hpp"
#include "property.hpp"

using namespace orch;

namespace {

struct Case {
  std::uint32_t ranks = 1;
  std::vector<std::uint32_t> home, encoder, llm;  // sample → rank
  std::vector<std::uint64_t> elements;            // per sample
};

std::vector<std::uint32_t> any_assignment(std::size_t n, std::uint32_t ranks) {
  return *rc::gen::container<std::vector<std::uint32_t>>(n, rc::gen::inRange<std::uint32_t>(0, ranks));
}

Case any_case() {
  Case c;
  c.ranks = *rc::gen::inRange<std::uint32_t>(1, 12);
  const auto n = *rc::gen::inRange<std::size_t>(0, 60);
  c.home = any_assignment(n, c.ranks);
  c.encoder = any_assignment(n, c.ranks);
  c.llm = any_assignment(n, c.ranks);
  c.elements = *rc::gen::container<std::vector<std::uint64_t>>(n, rc::gen::inRange<std::uint64_t>(0, 9));
  return c;
}

/// Payload of every element of every sample, laid out rank by rank as in `layout`.
using Buffers = std::vector<std::vector<std::uint64_t>>;
Buffers buffers(const Layout& layout, const std::vector<std::uint64_t>& elements) {
  Buffers result(layout.ranks());
  const auto samples = layout.samples();
  for (std::uint32_t rank = 0; rank < layout.ranks(); ++rank) {
    for (std::uint32_t slot = layout.first[rank]; slot < layout.first[rank + 1]; ++slot) {
      for (std::uint64_t i = 0; i < elements[samples[slot]]; ++i) result[rank].push_back(samples[slot] * 1000ULL + i);
    }
  }
  return result;
}

std::vector<std::uint64_t> by_slot(const Layout& layout, const std::vector<std::uint64_t>& elements) {
  std::vector<std::uint64_t> result(elements.size());
  for (std::size_t sample = 0; sample < elements.size(); ++sample) result[layout.slot_of[sample]] = elements[sample];
  return result;
}

/// Carries an exchange out by hand: packs send buffers, moves runs by offsets, unpacks into the layout after.
Buffers execute(const Rearrangement& r, const ExchangePlan& plan, const std::vector<std::uint64_t>& slot_elements,
                const Buffers& before) {
  const std::uint32_t ranks = r.ranks();
  Buffers send(ranks);
  Buffers receive(ranks);
  std::vector<std::uint64_t> after_elements(slot_elements.size());
  for (std::size_t slot = 0; slot < slot_elements.size(); ++slot) after_elements[r.to[slot]] = slot_elements[slot];
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<std::uint32_t> slots(r.first_before[rank + 1] - r.first_before[rank]);
    std::iota(slots.begin(), slots.end(), r.first_before[rank]);
    std::vector<std::uint64_t> offset(slots.size() + 1, 0);
    for (std::size_t i = 0; i < slots.size(); ++i) offset[i + 1] = offset[i] + slot_elements[slots[i]];
    std::sort(slots.begin(), slots.end(), [&](auto a, auto b) { return r.to[a] < r.to[b]; });
    for (const auto slot : slots) {
      const auto begin = before[rank].begin() + static_cast<std::ptrdiff_t>(offset[slot - r.first_before[rank]]);
      send[rank].insert(send[rank].end(), begin, begin + static_cast<std::ptrdiff_t>(slot_elements[slot]));
    }
    receive[rank].resize(plan.receive_elements[rank]);
  }
  for (const Transfer& t : plan.transfers) {
    std::copy_n(send[t.from].begin() + static_cast<std::ptrdiff_t>(t.send_offset), t.elements,
                receive[t.to].begin() + static_cast<std::ptrdiff_t>(t.receive_offset));
  }
  // A receive buffer holds runs by sender, each in order of the layout after: merge them by slot.
  Buffers after(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<std::uint32_t> sender(r.first_after[rank + 1] - r.first_after[rank]);
    for (std::uint32_t from = 0; from < ranks; ++from) {
      for (std::uint32_t slot = r.first_before[from]; slot < r.first_before[from + 1]; ++slot) {
        const std::uint32_t to = r.to[slot];
        if (to >= r.first_after[rank] && to < r.first_after[rank + 1]) sender[to - r.first_after[rank]] = from;
      }
    }
    std::vector<std::uint64_t> next(ranks, 0);
    for (const Transfer& t : plan.transfers) {
      if (t.to == rank) next[t.from] = t.receive_offset;
    }
    for (std::size_t i = 0; i < sender.size(); ++i) {
      const std::uint64_t count = after_elements[r.first_after[rank] + i];
      for (std::uint64_t k = 0; k < count; ++k) after[rank].push_back(receive[rank][next[sender[i]]++]);
    }
  }
  return after;
}

}  // namespace

TEST_CASE("inverse twice is the identity, out and home again is the identity") {
  test::check_property("rearrangement algebra", [] {
    const Case c = any_case();
    const Layout home = layout(c.home, c.ranks);
    const Layout encoder = layout(c.encoder, c.ranks);
    const Layout llm = layout(c.llm, c.ranks);
    const Rearrangement to_encoder = rearrangement(home, encoder);
    const Rearrangement to_llm = rearrangement(home, llm);
    RC_ASSERT(inverse(inverse(to_encoder)) == to_encoder);
    RC_ASSERT(compose(inverse(to_encoder), to_encoder).is_identity());
    RC_ASSERT(compose(to_llm, inverse(to_encoder)) == rearrangement(encoder, llm));
    RC_ASSERT(rearrangement(home, home).is_identity());
  });
}

TEST_CASE("an exchange brings every element to its place, and its inverse brings it back") {
  test::check_property("exchange executed by hand", [] {
    const Case c = any_case();
    const Layout encoder = layout(c.encoder, c.ranks);
    const Layout llm = layout(c.llm, c.ranks);
    const Rearrangement r = rearrangement(encoder, llm);
    const ExchangePlan plan = exchange_plan(r, by_slot(encoder, c.elements), 2);
    verify(plan);
    const Buffers there = execute(r, plan, by_slot(encoder, c.elements), buffers(encoder, c.elements));
    RC_ASSERT(there == buffers(llm, c.elements));
    const Rearrangement back = inverse(r);
    const ExchangePlan return_plan = exchange_plan(back, by_slot(llm, c.elements), 2);
    RC_ASSERT(execute(back, return_plan, by_slot(llm, c.elements), there) == buffers(encoder, c.elements));
    for (const Transfer& t : plan.transfers) RC_ASSERT(t.elements > 0U);
  });
}

TEST_CASE("the inverse plan swaps senders and receivers and still tiles its buffers") {
  test::check_property("inverse of a plan", [] {
    const Case c = any_case();
    const Layout home = layout(c.home, c.ranks);
    const ExchangePlan plan = exchange_plan(rearrangement(home, layout(c.llm, c.ranks)), by_slot(home, c.elements), 4);
    const ExchangePlan back = inverse(plan);
    RC_ASSERT(back.transfers.size() == plan.transfers.size());
    RC_ASSERT(back.send_elements == plan.receive_elements);
    RC_ASSERT(inverse(back).transfers == plan.transfers);
    verify(back);
    const Traffic there = traffic(plan, 4);
    const Traffic home_again = traffic(back, 4);
    RC_ASSERT(there.inter_node_bytes == home_again.inter_node_bytes);
    const std::uint64_t all = std::accumulate(c.elements.begin(), c.elements.end(), std::uint64_t{0});
    RC_ASSERT(there.local_bytes + there.moved_bytes() == 4 * all);
  });
}

TEST_CASE("verification names the first rank pair that does not fit") {
  const std::vector<std::uint32_t> before{0, 0, 1, 1};
  const std::vector<std::uint32_t> after{0, 1, 0, 1};
  const std::vector<std::uint64_t> elements{1, 2, 3, 4};
  const Layout from = layout(before, 2);
  ExchangePlan plan = exchange_plan(rearrangement(from, layout(after, 2)), by_slot(from, elements), 1);
  verify(plan);
  plan.transfers[1].receive_offset += 1;
  CHECK_THROWS_WITH_AS(verify(plan), doctest::Contains("0 -> 1"), InvalidInput);
  plan.transfers[1].receive_offset -= 1;
  plan.transfers[2].elements += 1;
  CHECK_THROWS_WITH_AS(verify(plan), doctest::Contains("1 -> 1"), InvalidInput);
}

TEST_CASE("layouts of different samples cannot be rearranged into one another") {
  const std::vector<std::uint32_t> two{0, 1};
  const std::vector<std::uint32_t> three{0, 1, 1};
  CHECK_THROWS_AS((void)rearrangement(layout(two, 2), layout(three, 2)), InvalidInput);
  CHECK_THROWS_AS((void)layout(three, 1), InvalidInput);
}
