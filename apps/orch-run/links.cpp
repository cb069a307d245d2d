#include "links.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <span>

#include "orchmllm/cost/fit.hpp"
#include "statistics.hpp"

namespace orch::apps {

namespace {

using runtime::ReceiveRun;
using runtime::SendRun;

constexpr std::uint64_t smallest_message = 64;
constexpr std::uint64_t most_pattern_bytes = std::uint64_t{2} << 30U;  // that a rank sends at once
constexpr std::uint64_t small_message = 4096;                          // up to here set-up decides
constexpr std::uint64_t large_message = std::uint64_t{1} << 18U;       // from here on bandwidth does

/// Who sends to whom: the first `senders` ranks of every node, each to its next `peers` ranks on that kind of link.
class Pattern {
 public:
  Pattern(const Topology& topology, Link link, std::uint32_t senders, std::uint32_t peers)
      : topology_(topology), link_(link), senders_(senders), peers_(peers) {}

  [[nodiscard]] bool sends(std::uint32_t from, std::uint32_t to) const {
    const std::uint32_t from_place = topology_.local_index(from);
    const std::uint32_t to_place = topology_.local_index(to);
    if (from == to || from_place >= senders_ || to_place >= senders_) return false;
    const std::uint32_t shift = (to_place + senders_ - from_place) % senders_;
    if (link_ == Link::intra_node) return topology_.node_of[from] == topology_.node_of[to] && shift <= peers_;
    const std::uint32_t nodes = topology_.nodes();
    const std::uint32_t hops = (topology_.node_of[to] + nodes - topology_.node_of[from]) % nodes;
    return hops > 0 && shift * (nodes - 1) + hops <= peers_;
  }

 private:
  const Topology& topology_;
  Link link_;
  std::uint32_t senders_;
  std::uint32_t peers_;
};

class LinkMeter {
 public:
  LinkMeter(Backend& transport, const Topology& topology) : transport_(transport), topology_(topology) {}

  /// Repeats an exchange until `seconds` are over. Throws TransportError.
  [[nodiscard]] LinkRow measure(Link link, std::uint32_t senders, std::uint32_t peers, std::uint64_t bytes,
                                double seconds) {
    const Pattern pattern(topology_, link, senders, peers);
    std::vector<SendRun> sends;
    std::vector<ReceiveRun> receives;
    const std::uint32_t me = transport_.rank();
    std::vector<std::uint32_t> to_peers, from_peers;
    for (std::uint32_t step = 1; step < topology_.ranks(); ++step) {  // the next rank first, as runs do
      const std::uint32_t to = (me + step) % topology_.ranks();
      const std::uint32_t from = (me + topology_.ranks() - step) % topology_.ranks();
      if (pattern.sends(me, to)) to_peers.push_back(to);
      if (pattern.sends(from, me)) from_peers.push_back(from);
    }
    const std::span<std::byte> outgoing = transport_.message_memory(to_peers.size() * bytes, false);
    const std::span<std::byte> incoming = transport_.message_memory(from_peers.size() * bytes, true);
    for (const std::uint32_t to : to_peers) sends.push_back({to, 0, outgoing.subspan(sends.size() * bytes, bytes)});
    for (const std::uint32_t from : from_peers) {
      receives.push_back({from, 0, incoming.subspan(receives.size() * bytes, bytes)});
    }
    const Repeated times = repeat(transport_, seconds, Timing::together,
                                  [&] { transport_.all_to_all("calibrating links", sends, receives); });
    return {link, senders, peers, bytes, times.repetitions, times.seconds, 0};
  }

  /// Half of the way there and back of a small message between rank 0 and `peer`.
  [[nodiscard]] double hop(std::uint32_t peer, double seconds) {
    constexpr int turns = 16;
    const std::span<std::byte> outgoing = transport_.message_memory(1, false);
    const std::span<std::byte> incoming = transport_.message_memory(1, true);
    const std::uint32_t me = transport_.rank();
    const std::uint32_t other = me == 0 ? peer : 0;
    const Repeated times = repeat(transport_, seconds, Timing::together, [&] {
      for (int turn = 0; turn < turns && (me == 0 || me == peer); ++turn) {
        const std::vector<SendRun> send{{other, 0, outgoing}};
        const std::vector<ReceiveRun> receive{{other, 0, incoming}};
        const char* what = "calibrating latency";
        transport_.all_to_all(what, me == 0 ? send : std::vector<SendRun>{},
                              me == 0 ? std::vector<ReceiveRun>{} : receive);
        transport_.all_to_all(what, me == 0 ? std::vector<SendRun>{} : send,
                              me == 0 ? receive : std::vector<ReceiveRun>{});
      }
    });
    return times.seconds / (2 * turns);
  }

 private:
  Backend& transport_;
  const Topology& topology_;
};

/// Relative errors' least squares: seconds ≈ Σ coefficient · column, none negative.
struct Fit {
  std::vector<double> coefficients;
  double residual = 0;  ///< root of the mean square of relative errors
};

Fit fit(const std::vector<std::vector<double>>& columns, const std::vector<double>& seconds) {
  const auto rows = static_cast<Eigen::Index>(seconds.size());
  Eigen::MatrixXd a(rows, static_cast<Eigen::Index>(columns.size()));
  for (Eigen::Index j = 0; j < a.cols(); ++j) {
    for (Eigen::Index i = 0; i < rows; ++i) {
      a(i, j) =
          columns[static_cast<std::size_t>(j)][static_cast<std::size_t>(i)] / seconds[static_cast<std::size_t>(i)];
    }
  }
  const Eigen::VectorXd norms = a.colwise().norm().transpose();
  for (Eigen::Index j = 0; j < a.cols(); ++j) a.col(j) /= norms(j) > 0 ? norms(j) : 1;
  const Eigen::VectorXd ones = Eigen::VectorXd::Ones(rows);
  const Eigen::VectorXd x = orch::detail::non_negative_least_squares(a, ones);
  Fit result;
  result.residual = std::sqrt((a * x - ones).squaredNorm() / static_cast<double>(rows));
  for (Eigen::Index j = 0; j < a.cols(); ++j) result.coefficients.push_back(norms(j) > 0 ? x(j) / norms(j) : 0);
  return result;
}

/// Bytes that one port carries, per direction.
double port_bytes(const LinkRow& row, const LinkFit& link) {
  const double ranks_a_port =
      row.link == Link::inter_node && link.ports > 0 ? std::ceil(static_cast<double>(row.senders) / link.ports) : 1;
  return ranks_a_port * row.peers * static_cast<double>(row.bytes);
}

/// All sizes, as long as repetitions of the next one fit into what is left of the time.
[[nodiscard]] std::vector<LinkRow> measure_sizes(Backend& transport, LinkMeter& meter, Link link, std::uint32_t senders,
                                                 std::uint32_t peers, double seconds) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = smallest_message; bytes <= transport.largest_message(); bytes *= 4) sizes.push_back(bytes);
  std::vector<LinkRow> rows;
  Budget budget(transport, seconds);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    // Small ones need little: the larger half gets what they leave.
    const double left = budget.left();
    const double part = left / static_cast<double>(sizes.size() - i);
    // Four times the bytes may take four times as long, once more than they are repeated.
    if (i > 0 && rows.back().seconds * 4 * (fewest_repetitions + 1) > left) break;
    if (sizes[i] * peers > most_pattern_bytes) break;
    rows.push_back(meter.measure(link, senders, peers, sizes[i], std::min(part, 0.3 * seconds)));
  }
  return rows;
}

void keep_quietest(std::vector<LinkRow>& rows, const LinkRow& row) {
  const auto same = std::find_if(rows.begin(), rows.end(), [&](const LinkRow& known) {
    return known.link == row.link && known.senders == row.senders && known.peers == row.peers &&
           known.bytes == row.bytes;
  });
  if (same == rows.end()) {
    rows.push_back(row);
    return;
  }
  const std::uint32_t repetitions = same->repetitions + row.repetitions;
  if (row.seconds < same->seconds) *same = row;
  same->repetitions = repetitions;
}

/// How many NICs a node's ranks share: what all of them send at once over what one sends alone.
std::uint32_t shared_ports(const std::vector<LinkRow>& rows, std::uint32_t ranks_per_node) {
  const auto rate = [&](std::uint32_t senders) {
    double best = 0;
    for (const LinkRow& row : rows) {
      if (row.link != Link::inter_node || row.senders != senders || row.bytes < large_message) continue;
      best = std::max(best, senders * row.peers * static_cast<double>(row.bytes) / row.seconds);
    }
    return best;
  };
  const double alone = rate(1);
  if (alone <= 0) return 0;
  const auto ports = static_cast<std::uint32_t>(
      std::clamp(std::lround(rate(ranks_per_node) / alone), 1L, static_cast<long>(ranks_per_node)));
  return ports == ranks_per_node ? 0 : ports;
}

/// Bandwidth from large messages, shares of it by size.
void fit_bandwidth(LinkResults& results, Link link, LinkFit& into) {
  std::vector<std::vector<double>> columns(1);
  std::vector<double> seconds;
  const auto setup = [&](const LinkRow& row) { return results.base_seconds + row.peers * results.peer_seconds; };
  std::uint64_t largest = 0;
  for (const LinkRow& row : results.rows) largest = std::max(largest, row.link == link ? row.bytes : 0);
  const std::uint64_t from = std::min(large_message, largest);
  for (const LinkRow& row : results.rows) {
    if (row.link != link || row.bytes < from || row.seconds <= setup(row)) continue;
    columns[0].push_back(port_bytes(row, into));
    seconds.push_back(row.seconds - setup(row));
  }
  if (seconds.empty()) return;
  const Fit fitted = fit(columns, seconds);
  into.bandwidth = 1 / fitted.coefficients[0];
  into.residual = fitted.residual;
  into.measured = true;
  for (LinkRow& row : results.rows) {
    if (row.link == link) row.fitted = setup(row) + port_bytes(row, into) / into.bandwidth;
  }
  for (std::uint64_t bytes = smallest_message; bytes <= largest; bytes *= 4) {
    std::vector<double> shares;
    for (const LinkRow& row : results.rows) {
      const double carrying = row.seconds - setup(row);
      // What set-up decides says nothing of bandwidth.
      if (row.link != link || row.bytes != bytes || carrying < 0.5 * row.seconds) continue;
      shares.push_back(port_bytes(row, into) / into.bandwidth / carrying);
    }
    if (shares.empty()) continue;
    into.share_bytes.push_back(static_cast<double>(bytes));
    into.share.push_back(std::min(1.0, median(shares)));
  }
}

}  // namespace

LinkResults measure_links(Backend& transport, const Topology& topology, double seconds) {
  const std::uint32_t size = topology.size(0);
  const std::uint32_t nodes = topology.nodes();
  const std::uint32_t others = (nodes - 1) * size;
  struct Series {
    Link link;
    std::uint32_t senders;
    std::uint32_t peers;
  };
  std::vector<Series> series;
  for (const std::uint32_t peers : {1U, 2U, size - 1}) {
    if (peers > 0 && peers < size && (series.empty() || series.back().peers < peers)) {
      series.push_back({Link::intra_node, size, peers});
    }
  }
  const std::size_t inside = series.size();
  for (const std::uint32_t peers : {1U, nodes - 1, others}) {
    if (nodes > 1 && (series.size() == inside || series.back().peers < peers)) {
      series.push_back({Link::inter_node, size, peers});
    }
  }
  if (nodes > 1 && size > 1) series.push_back({Link::inter_node, 1, nodes - 1});

  LinkResults results;
  LinkMeter meter(transport, topology);
  Budget budget(transport, seconds);
  constexpr double rounds = 3;  // long ones: networks vary by themselves, and the median is what runs see
  each_round(transport, 0.9 * seconds, rounds, [&](double round_seconds) {
    Budget round(transport, round_seconds);
    for (std::size_t i = 0; i < series.size(); ++i) {
      const Series& s = series[i];
      const double part = round.left() / static_cast<double>(series.size() - i);
      for (const LinkRow& row : measure_sizes(transport, meter, s.link, s.senders, s.peers, part)) {
        keep_quietest(results.rows, row);
      }
    }
  });
  if (nodes > 1 && size > 1) results.between.ports = shared_ports(results.rows, size);

  // Small messages on the slowest kind of link that there is: what sets up an exchange.
  const Link slowest = nodes > 1 ? Link::inter_node : Link::intra_node;
  std::vector<std::vector<double>> columns(2);
  std::vector<double> times;
  for (const LinkRow& row : results.rows) {
    if (row.link != slowest || row.bytes > small_message || row.senders != size) continue;
    columns[0].push_back(1);
    columns[1].push_back(row.peers);
    times.push_back(row.seconds);
  }
  if (!times.empty()) {
    const Fit setup = fit(columns, times);
    results.base_seconds = setup.coefficients[0];
    results.peer_seconds = setup.coefficients[1];
    results.latency_residual = setup.residual;
  }
  fit_bandwidth(results, Link::intra_node, results.inside);
  fit_bandwidth(results, Link::inter_node, results.between);
  if (size > 1) results.inside.hop_seconds = meter.hop(1, budget.left() / 3);
  if (nodes > 1) results.between.hop_seconds = meter.hop(size, budget.left() / 2);
  const Repeated gathers = repeat(transport, budget.left(), Timing::together,
                                  [&] { (void)transport.all_gather("calibrating collectives", "-"); });
  // A gathering is two collectives: of lengths, of texts.
  const double hops =
      (nodes - 1) * results.between.hop_seconds + (topology.ranks() - nodes) * results.inside.hop_seconds;
  results.collective_seconds = std::max(0.0, gathers.seconds / 2 - hops);
  return results;
}

}  // namespace orch::apps
