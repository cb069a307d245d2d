#include "orchmllm/sim/step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "orchmllm/base/error.hpp"
#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/sim/collectives.hpp"

namespace orch::sim {

namespace {

constexpr TaskId no_task = ~TaskId{0};

class StepBuilder {
 public:
  StepBuilder(const StepPlan& plan, const std::vector<PhaseShape>& shapes, const Cluster& cluster,
              const Sharding& sharding)
      : plan_(plan),
        shapes_(shapes),
        cluster_(cluster),
        ranks_(plan.ranks()),
        shard_(sharding.shard),
        units_(fsdp_units(shapes, cluster.layers_per_unit)) {
    if (shard_ == 0 || ranks_ % shard_ != 0) {
      throw InvalidInput(fmt::format("a shard group of {} ranks does not divide {} ranks", shard_, ranks_));
    }
    for (std::size_t phase = 0; phase < plan.phases.size(); ++phase) {
      work_.push_back(rank_work(shapes[phase], plan.phases[phase], ranks_, cluster));
    }
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      compute_.push_back(graph_.add_resource());
      nvlink_.push_back(graph_.add_resource());
      nic_.push_back(graph_.add_resource());
    }
    last_.assign(ranks_, no_task);
    second_last_.assign(ranks_, no_task);
  }

  PlayedStep play() {
    add_inputs();
    outputs_ready_.resize(plan_.routes.size());
    gradients_ready_.resize(plan_.routes.size());
    for (std::size_t u = 0; u < units_.size(); ++u) {
      add_compute(u, Activity::forward);
      if (!units_[u].last) continue;
      for (std::size_t r = 0; r < plan_.routes.size(); ++r) {
        if (plan_.routes[r].from == units_[u].phase) outputs_ready_[r] = add_exchange(plan_.routes[r]);
      }
    }
    for (std::size_t u = units_.size(); u-- > 0;) {
      add_compute(u, Activity::backward);
      add_reduction(u);
      if (!units_[u].first) continue;
      for (std::size_t r = plan_.routes.size(); r-- > 0;) {
        const Route& route = plan_.routes[r];
        if (!route.is_input() && route.to == units_[u].phase) gradients_ready_[r] = add_exchange(way_back(route));
      }
    }
    add_optimizer();

    PlayedStep played;
    played.schedule = graph_.run();
    played.result = measure(played.schedule);
    played.graph = std::move(graph_);
    played.tags = std::move(tags_);
    played.units = std::move(units_);
    return played;
  }

 private:
  using RankTasks = std::vector<std::vector<TaskId>>;  ///< rank → its tasks on NVLink and NIC

  TaskId add(ResourceId resource, double seconds, Activity activity, std::size_t unit, std::uint32_t rank) {
    tags_.push_back({activity, static_cast<std::uint16_t>(unit), rank});
    return graph_.add_task(resource, to_nanoseconds(seconds));
  }

  TaskId add_barrier() { return add(no_resource, 0, Activity::barrier, 0, 0); }

  void depend(TaskId before, TaskId after) {
    if (before != no_task) graph_.add_dependency(before, after);
  }

  /// Weights of unit `u` for one group: all its ranks must have come within one unit of needing them.
  std::vector<TaskId> add_gather(std::size_t u) {
    std::vector<TaskId> gathered(ranks_, no_task);
    if (shard_ == 1) return gathered;
    const double seconds = ring_seconds(units_[u].parameters * cluster_.parameter_bytes, shard_, cluster_);
    for (std::uint32_t group = 0; group < ranks_; group += shard_) {
      const TaskId barrier = add_barrier();
      for (std::uint32_t rank = group; rank < group + shard_; ++rank) depend(second_last_[rank], barrier);
      for (std::uint32_t rank = group; rank < group + shard_; ++rank) {
        gathered[rank] = add(link(rank), seconds, Activity::gather, u, rank);
        graph_.add_dependency(barrier, gathered[rank]);
      }
    }
    return gathered;
  }

  void add_compute(std::size_t u, Activity activity) {
    const Unit& unit = units_[u];
    const std::vector<TaskId> gathered = add_gather(u);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const PhaseShape& shape = shapes_[unit.phase];
      const PhaseWork& work = work_[unit.phase][rank];
      const double seconds = activity == Activity::forward ? forward_seconds(unit, shape, work, cluster_)
                                                           : backward_seconds(unit, shape, work, cluster_);
      const TaskId task = add(compute_[rank], seconds, activity, u, rank);
      depend(last_[rank], task);
      depend(gathered[rank], task);
      for (std::size_t r = 0; r < plan_.routes.size(); ++r) {
        const Route& route = plan_.routes[r];
        if (activity == Activity::forward && unit.first && route.to == unit.phase) {
          depend_all(outputs_ready_[r], rank, task);
        }
        if (activity == Activity::backward && unit.last && route.from == unit.phase) {
          depend_all(gradients_ready_[r], rank, task);
        }
      }
      second_last_[rank] = std::exchange(last_[rank], task);
    }
  }

  void depend_all(const RankTasks& before, std::uint32_t rank, TaskId after) {
    if (before.empty()) return;
    for (const TaskId task : before[rank]) depend(task, after);
  }

  /// Gradients of unit `u`: reduced and scattered in the group, then summed over the groups.
  void add_reduction(std::size_t u) {
    const double bytes = units_[u].parameters * cluster_.gradient_bytes;
    reduced_.assign(ranks_, no_task);
    if (shard_ > 1) {
      const double seconds = ring_seconds(bytes, shard_, cluster_);
      for (std::uint32_t group = 0; group < ranks_; group += shard_) {
        const TaskId barrier = add_barrier();
        for (std::uint32_t rank = group; rank < group + shard_; ++rank) graph_.add_dependency(last_[rank], barrier);
        for (std::uint32_t rank = group; rank < group + shard_; ++rank) {
          reduced_[rank] = add(link(rank), seconds, Activity::reduce, u, rank);
          graph_.add_dependency(barrier, reduced_[rank]);
        }
      }
    }
    const std::uint32_t replicas = ranks_ / shard_;
    if (replicas == 1) return;
    const double share = bytes / shard_;
    const double seconds = shard_ == 1 ? 2 * ring_seconds(share, replicas, cluster_)
                                       : replica_all_reduce_seconds(share, replicas, cluster_);
    for (std::uint32_t place = 0; place < shard_; ++place) {
      const TaskId barrier = add_barrier();
      for (std::uint32_t rank = place; rank < ranks_; rank += shard_) {
        graph_.add_dependency(reduced_[rank] != no_task ? reduced_[rank] : last_[rank], barrier);
      }
      for (std::uint32_t rank = place; rank < ranks_; rank += shard_) {
        reduced_[rank] = add(replica_link(rank), seconds, Activity::reduce, u, rank);
        graph_.add_dependency(barrier, reduced_[rank]);
      }
    }
  }

  [[nodiscard]] static Route way_back(const Route& route) {
    if (route.stages) return {route.from, route.to, {}, inverse(*route.stages)};
    return {route.from, route.to, inverse(route.exchange), {}};
  }

  /// What an exchange puts on every rank's links, stage after stage.
  [[nodiscard]] std::vector<std::vector<LinkTraffic>> stages(const Route& route) const {
    if (!route.stages) return {link_traffic(route.exchange, plan_.topology)};
    const auto three = link_traffic(*route.stages, plan_.topology);
    return {three.begin(), three.end()};
  }

  /// One all-to-all: every stage starts when all ranks are ready, and ends per rank when its own bytes are through.
  RankTasks add_exchange(const Route& route) {
    RankTasks tasks(ranks_);
    Exchange exchange{add_barrier(), {}};
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) depend(last_[rank], exchange.barrier);
    TaskId barrier = exchange.barrier;
    for (const std::vector<LinkTraffic>& stage : stages(route)) {
      if (barrier == no_task) {
        barrier = add_barrier();
        for (const TaskId task : exchange.tasks) graph_.add_dependency(task, barrier);
      }
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        for (const Link link : {Link::intra_node, Link::inter_node}) {
          const double seconds = stage[rank].seconds(link, rates_);
          if (seconds == 0) continue;
          const TaskId task = add(resource(link, rank), seconds, Activity::exchange, route.from, rank);
          graph_.add_dependency(barrier, task);
          tasks[rank].push_back(task);
          exchange.tasks.push_back(task);
        }
      }
      barrier = no_task;
    }
    exchanges_.push_back(std::move(exchange));
    return tasks;
  }

  /// Raw inputs of the next step, of the size of this step's, at the start of the forward pass. Nothing waits for them.
  void add_inputs() {
    for (const Route& route : plan_.routes) {
      if (!route.is_input()) continue;
      for (const std::vector<LinkTraffic>& stage : stages(route)) {
        for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
          for (const Link link : {Link::intra_node, Link::inter_node}) {
            const double seconds = stage[rank].seconds(link, rates_);
            if (seconds > 0) (void)add(resource(link, rank), seconds, Activity::input, route.to, rank);
          }
        }
      }
    }
  }

  [[nodiscard]] ResourceId resource(Link link, std::uint32_t rank) const {
    return link == Link::intra_node ? nvlink_[rank] : nic_[rank];
  }

  void add_optimizer() {
    double parameters = 0;
    for (const Unit& unit : units_) parameters += unit.parameters;
    const double seconds = parameters / shard_ * cluster_.optimizer_traffic_bytes / cluster_.memory_bandwidth;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const TaskId task = add(compute_[rank], seconds, Activity::optimizer, 0, rank);
      depend(last_[rank], task);
      // Reductions of a rank run one after the other on one link, so the last one ends last.
      depend(reduced_[rank], task);
    }
  }

  [[nodiscard]] ResourceId link(std::uint32_t rank) const {
    return shard_ <= cluster_.gpus_per_node ? nvlink_[rank] : nic_[rank];
  }
  [[nodiscard]] ResourceId replica_link(std::uint32_t rank) const {
    return ranks_ <= cluster_.gpus_per_node ? nvlink_[rank] : nic_[rank];
  }

  [[nodiscard]] StepResult measure(const Schedule& schedule) const {
    StepResult result;
    result.seconds = seconds(schedule.makespan);
    result.events = schedule.events;
    Nanoseconds busy = 0;
    for (const ResourceId resource : compute_) busy += schedule.busy[resource];
    result.busy_seconds = seconds(busy) / ranks_;
    for (const auto& [barrier, tasks] : exchanges_) {
      Nanoseconds end = schedule.finish[barrier];
      for (const TaskId task : tasks) end = std::max(end, schedule.finish[task]);
      result.exchange_seconds += seconds(end - schedule.finish[barrier]);
    }
    measure_phases(schedule, result);
    measure_breakdown(schedule, result);
    measure_bytes(result);
    measure_memory(result);
    for (std::size_t phase = 0; phase < work_.size(); ++phase) {
      for (const PhaseWork& work : work_[phase]) result.model_flops += model_flops(shapes_[phase], work);
    }
    for (const PhaseWork& work : work_.back()) result.tokens += work.tokens;
    return result;
  }

  void measure_phases(const Schedule& schedule, StepResult& result) const {
    struct Span {
      Nanoseconds begin = std::numeric_limits<Nanoseconds>::max();
      Nanoseconds end = 0;
      Nanoseconds busy = 0;
    };
    std::vector<std::array<Span, 2>> spans(plan_.phases.size());
    for (TaskId task = 0; task < tags_.size(); ++task) {
      const TaskTag& tag = tags_[task];
      if (tag.activity != Activity::forward && tag.activity != Activity::backward) continue;
      Span& span = spans[units_[tag.unit].phase][tag.activity == Activity::forward ? 0 : 1];
      span.begin = std::min(span.begin, schedule.start[task]);
      span.end = std::max(span.end, schedule.finish[task]);
      span.busy += schedule.finish[task] - schedule.start[task];
    }
    for (std::size_t phase = 0; phase < spans.size(); ++phase) {
      PhaseTimes times{plan_.phases[phase].phase, 0, 0};
      for (const Span& span : spans[phase]) {
        times.busy_seconds += seconds(span.busy) / ranks_;
        times.wall_seconds += seconds(span.end - span.begin);
      }
      result.phases.push_back(times);
    }
  }

  /// Gaps between a rank's compute tasks: what ends a gap on a link is exposed for as long as it ran in the gap, the
  /// rest is waiting.
  void measure_breakdown(const Schedule& schedule, StepResult& result) const {
    std::vector<TaskId> last_arrival(tags_.size(), no_task);  // compute task → its predecessor on a link that ends last
    for (const auto& [before, after] : graph_.edges()) {
      if (!computes(tags_[after]) || !on_link(tags_[before])) continue;
      TaskId& last = last_arrival[after];
      if (last == no_task || schedule.finish[before] > schedule.finish[last]) last = before;
    }
    std::vector<Nanoseconds> compute(plan_.phases.size(), 0);
    Nanoseconds optimizer = 0, exchange = 0, collectives = 0, waiting = 0;
    std::vector<Nanoseconds> done(ranks_, 0);
    for (TaskId task = 0; task < tags_.size();
         ++task) {  // a rank's compute tasks were added in the order in which they run
      const TaskTag& tag = tags_[task];
      if (!computes(tag)) continue;
      const Nanoseconds duration = schedule.finish[task] - schedule.start[task];
      (tag.activity == Activity::optimizer ? optimizer : compute[units_[tag.unit].phase]) += duration;
      const Nanoseconds gap = schedule.start[task] - done[tag.rank];
      Nanoseconds exposed = 0;
      if (const TaskId link = last_arrival[task];
          gap > 0 && link != no_task && schedule.finish[link] == schedule.start[task]) {
        exposed = schedule.finish[link] - std::max(schedule.start[link], done[tag.rank]);
        (tags_[link].activity == Activity::exchange ? exchange : collectives) += exposed;
      }
      waiting += gap - exposed;
      done[tag.rank] = schedule.finish[task];
    }
    for (const Nanoseconds end : done) waiting += schedule.makespan - end;
    const auto mean = [&](Nanoseconds sum) { return seconds(sum) / ranks_; };
    for (const Nanoseconds sum : compute) result.breakdown.compute.push_back(mean(sum));
    result.breakdown.optimizer = mean(optimizer);
    result.breakdown.exposed_exchange = mean(exchange);
    result.breakdown.exposed_collectives = mean(collectives);
    result.breakdown.waiting = mean(waiting);
  }

  [[nodiscard]] static bool computes(const TaskTag& tag) {
    return tag.activity == Activity::forward || tag.activity == Activity::backward ||
           tag.activity == Activity::optimizer;
  }
  [[nodiscard]] static bool on_link(const TaskTag& tag) {
    return tag.activity == Activity::gather || tag.activity == Activity::reduce || tag.activity == Activity::exchange;
  }

  void measure_bytes(StepResult& result) const {
    for (const Route& route : plan_.routes) {
      const Traffic moved = traffic(route, plan_.topology);
      if (route.is_input()) {
        result.input_intra_node_bytes += moved.intra_node_bytes;
        result.input_inter_node_bytes += moved.inter_node_bytes;
      } else {
        result.output_intra_node_bytes += 2 * moved.intra_node_bytes;  // there, and gradients back
        result.output_inter_node_bytes += 2 * moved.inter_node_bytes;
      }
    }
  }

  /// rank → bytes of the buffers that outputs are sent from and received in, and of those that are passed on.
  [[nodiscard]] std::vector<std::uint64_t> exchange_buffers() const {
    std::vector<std::uint64_t> bytes(ranks_, 0);
    for (const Route& route : plan_.routes) {
      if (route.is_input() || route.exchange.identity) continue;
      const ExchangePlan& plan = route.exchange;
      for (std::size_t f = 0; f < plan.fields(); ++f) {
        for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
          bytes[rank] +=
              (plan.send_elements[f][rank] + plan.receive_elements[f][rank]) * plan.payload[f].field.element_bytes;
        }
      }
      if (!route.stages) continue;
      const std::vector<std::uint64_t> passed_on = staging_bytes(*route.stages);
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) bytes[rank] += passed_on[rank];
    }
    return bytes;
  }

  void measure_memory(StepResult& result) const {
    std::vector<PhaseWork> work(work_.size());
    const std::vector<std::uint64_t> buffers = exchange_buffers();
    double most = -1;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      for (std::size_t phase = 0; phase < work_.size(); ++phase) work[phase] = work_[phase][rank];
      const Memory memory = rank_memory(shapes_, units_, work, static_cast<double>(buffers[rank]), shard_, cluster_);
      if (memory.total() <= most) continue;
      most = memory.total();
      result.peak_memory = memory;
      result.peak_rank = rank;
    }
  }

  [[nodiscard]] static double seconds(Nanoseconds time) { return static_cast<double>(time) * 1e-9; }

  struct Exchange {
    TaskId barrier;
    std::vector<TaskId> tasks;
  };

  const StepPlan& plan_;
  const std::vector<PhaseShape>& shapes_;
  const Cluster& cluster_;
  LinkRates rates_ = cluster_.exchange_rates();
  std::uint32_t ranks_;
  std::uint32_t shard_;
  std::vector<Unit> units_;
  std::vector<std::vector<PhaseWork>> work_;  ///< phase → rank
  TaskGraph graph_;
  std::vector<TaskTag> tags_;
  std::vector<ResourceId> compute_;
  std::vector<ResourceId> nvlink_;
  std::vector<ResourceId> nic_;
  std::vector<TaskId> last_;                ///< rank → its latest compute task
  std::vector<TaskId> second_last_;         ///< the one before it: when it ends, one more unit may be gathered
  std::vector<TaskId> reduced_;             ///< rank → reduction of the latest unit
  std::vector<RankTasks> outputs_ready_;    ///< route → its forward exchange
  std::vector<RankTasks> gradients_ready_;  ///< route → its backward exchange
  std::vector<Exchange> exchanges_;
};

}  // namespace

double Breakdown::total() const {
  return std::accumulate(compute.begin(), compute.end(), 0.0) + optimizer + exposed_exchange + exposed_collectives +
         waiting;
}

PlayedStep play_step(const StepPlan& plan, const std::vector<PhaseShape>& shapes, const Cluster& cluster,
                     const Sharding& sharding) {
  return StepBuilder(plan, shapes, cluster, sharding).play();
}

}  // namespace orch::sim
