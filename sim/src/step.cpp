#include "orchmllm/sim/step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "orchmllm/base/error.hpp"
#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/sim/collectives.hpp"

namespace orch::sim {

namespace {

constexpr TaskId no_task = ~TaskId{0};

/// What one rank sends and receives in an exchange, by link.
struct RankTraffic {
  std::array<std::uint64_t, 2> sent{};  ///< intra node, inter node
  std::array<std::uint64_t, 2> received{};
  std::array<std::uint32_t, 2> peers{};  ///< ranks sent to, by link
};

std::vector<RankTraffic> rank_traffic(const ExchangePlan& plan, std::uint32_t gpus_per_node) {
  std::vector<RankTraffic> ranks(plan.ranks);
  for (const Transfer& transfer : plan.transfers) {
    if (transfer.from == transfer.to) continue;
    const std::size_t link = transfer.from / gpus_per_node == transfer.to / gpus_per_node ? 0 : 1;
    const std::uint64_t bytes = checked_mul(transfer.elements, plan.element_bytes);
    ranks[transfer.from].sent[link] += bytes;
    ranks[transfer.to].received[link] += bytes;
    ++ranks[transfer.from].peers[link];
  }
  return ranks;
}

class StepBuilder {
 public:
  StepBuilder(const StepPlan& plan, const Workload& workload, const Cluster& cluster, const Sharding& sharding)
      : plan_(plan),
        workload_(workload),
        cluster_(cluster),
        ranks_(plan.ranks),
        shard_(sharding.shard),
        units_(fsdp_units(workload.shapes(), cluster.layers_per_unit)) {
    if (shard_ == 0 || ranks_ % shard_ != 0) {
      throw InvalidInput(fmt::format("a shard group of {} ranks does not divide {} ranks", shard_, ranks_));
    }
    for (std::size_t phase = 0; phase < plan.phases.size(); ++phase) {
      work_.push_back(workload.rank_work(phase, plan.samples, plan.phases[phase].assignment.rank_of, ranks_));
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
    const std::size_t encoders = plan_.phases.size() - 1;
    outputs_ready_.assign(encoders, {});
    for (std::size_t u = 0; u < units_.size(); ++u) {
      add_compute(u, Activity::forward);
      const std::size_t phase = units_[u].phase;
      if (units_[u].last && phase < encoders) outputs_ready_[phase] = add_exchange(*plan_.phases[phase].output, phase);
    }
    for (std::size_t u = units_.size(); u-- > 0;) {
      add_compute(u, Activity::backward);
      add_reduction(u);
      if (units_[u].first && units_[u].phase == encoders) {
        for (std::size_t phase = encoders; phase-- > 0;) {
          gradients_ready_.push_back(add_exchange(inverse(*plan_.phases[phase].output), phase));
        }
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
  using RankTasks = std::vector<std::array<TaskId, 2>>;  ///< rank → its tasks on NVLink and NIC, or no_task

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
    const RankTasks* awaited = nullptr;
    const bool llm = unit.phase + 1 == plan_.phases.size();
    if (activity == Activity::backward && !llm && unit.last) {
      awaited = &gradients_ready_[plan_.phases.size() - 2 - unit.phase];
    }
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const PhaseShape& shape = workload_.shapes()[unit.phase];
      const PhaseWork& work = work_[unit.phase][rank];
      const double seconds = activity == Activity::forward ? forward_seconds(unit, shape, work, cluster_)
                                                           : backward_seconds(unit, shape, work, cluster_);
      const TaskId task = add(compute_[rank], seconds, activity, u, rank);
      depend(last_[rank], task);
      depend(gathered[rank], task);
      if (activity == Activity::forward && llm && unit.first) {
        for (const RankTasks& outputs : outputs_ready_) depend_all(outputs, rank, task);
      }
      if (awaited != nullptr) depend_all(*awaited, rank, task);
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

  /// One all-to-all: starts when every rank is ready, ends per rank when its own bytes are through.
  RankTasks add_exchange(const ExchangePlan& plan, std::size_t phase) {
    const std::vector<RankTraffic> traffic = rank_traffic(plan, cluster_.gpus_per_node);
    RankTasks tasks(ranks_, {no_task, no_task});
    std::vector<TaskId> all;
    const TaskId barrier = add_barrier();
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) depend(last_[rank], barrier);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      for (std::size_t link = 0; link < 2; ++link) {
        const double seconds = exchange_seconds(traffic[rank], link);
        if (seconds == 0) continue;
        tasks[rank][link] = add(link == 0 ? nvlink_[rank] : nic_[rank], seconds, Activity::exchange, phase, rank);
        graph_.add_dependency(barrier, tasks[rank][link]);
        all.push_back(tasks[rank][link]);
      }
    }
    exchanges_.push_back({barrier, std::move(all)});
    return tasks;
  }

  [[nodiscard]] double exchange_seconds(const RankTraffic& traffic, std::size_t link) const {
    const std::uint64_t bytes = std::max(traffic.sent[link], traffic.received[link]);
    if (bytes == 0) return 0;
    const double bandwidth = link == 0 ? cluster_.nvlink_bandwidth : cluster_.nic_bandwidth;
    return cluster_.exchange_base_seconds + traffic.peers[link] * cluster_.exchange_peer_seconds +
           static_cast<double>(bytes) / bandwidth;
  }

  /// Raw inputs of the next step, of the size of this step's, at the start of the forward pass.
  void add_inputs() {
    for (std::size_t phase = 0; phase < plan_.phases.size(); ++phase) {
      const std::vector<RankTraffic> traffic = rank_traffic(plan_.phases[phase].input, cluster_.gpus_per_node);
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        for (std::size_t link = 0; link < 2; ++link) {
          const double seconds = exchange_seconds(traffic[rank], link);
          if (seconds > 0) (void)add(link == 0 ? nvlink_[rank] : nic_[rank], seconds, Activity::input, phase, rank);
        }
      }
    }
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
    measure_bytes(result);
    measure_memory(result);
    for (std::size_t phase = 0; phase < work_.size(); ++phase) {
      for (const PhaseWork& work : work_[phase]) result.model_flops += model_flops(workload_.shapes()[phase], work);
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

  void measure_bytes(StepResult& result) const {
    for (const PhasePlan& phase : plan_.phases) {
      const Traffic input = traffic(phase.input, cluster_.gpus_per_node);
      result.input_intra_node_bytes += input.intra_node_bytes;
      result.input_inter_node_bytes += input.inter_node_bytes;
      if (!phase.output) continue;
      const Traffic output = traffic(*phase.output, cluster_.gpus_per_node);
      result.output_intra_node_bytes += 2 * output.intra_node_bytes;  // there, and gradients back
      result.output_inter_node_bytes += 2 * output.inter_node_bytes;
    }
  }

  void measure_memory(StepResult& result) const {
    std::vector<PhaseWork> work(work_.size());
    double most = -1;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      double staging = 0;
      for (std::size_t phase = 0; phase < work_.size(); ++phase) {
        work[phase] = work_[phase][rank];
        const auto& output = plan_.phases[phase].output;
        if (!output || plan_.phases[phase].from_home == plan_.llm().from_home) continue;  // nothing leaves its rank
        staging +=
            static_cast<double>((output->send_elements[rank] + output->receive_elements[rank]) * output->element_bytes);
      }
      const Memory memory = rank_memory(workload_.shapes(), units_, work, staging, shard_, cluster_);
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
  const Workload& workload_;
  const Cluster& cluster_;
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
  std::vector<RankTasks> outputs_ready_;    ///< encoder → its forward exchange
  std::vector<RankTasks> gradients_ready_;  ///< its backward exchange, last encoder first
  std::vector<Exchange> exchanges_;
};

}  // namespace

PlayedStep play_step(const StepPlan& plan, const Workload& workload, const Cluster& cluster, const Sharding& sharding) {
  return StepBuilder(plan, workload, cluster, sharding).play();
}

}  // namespace orch::sim
