#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "orchmllm/base/error.hpp"
#include "orchmllm/exchange/exchange_plan.hpp"
#include "orchmllm/sim/collectives.hpp"
#include "orchmllm/sim/fabric.hpp"
#include "orchmllm/sim/fluid_exchange.hpp"
#include "route_stages.hpp"
#include "step_graph.hpp"

namespace orch::sim {

namespace {

class DataParallelStep {
 public:
  DataParallelStep(const std::vector<PhaseShape>& shapes, const StepWork& work, const Exchanges& exchanges,
                   const Cluster& cluster, const Parallelism& parallelism, const Conditions& conditions)
      : shapes_(shapes),
        work_(work),
        routes_(exchanges.routes),
        topology_(exchanges.topology),
        gathers_all_(exchanges.method == ExchangeMethod::all_gather),
        fabric_(exchanges.network == NetworkModel::fluid ? std::optional(make_fabric(exchanges, cluster, parallelism))
                                                         : std::nullopt),
        cluster_(cluster),
        parallelism_(parallelism),
        lanes_(work.simulated()),
        shard_(parallelism.data == DataParallel::fsdp ? (parallelism.shard == 0 ? work.instances : parallelism.shard)
                                                      : 1),
        units_(fsdp_units(shapes, cluster.software.layers_per_unit)),
        graph_(lanes_, 1, conditions) {
    if (shard_ > work.instances || work.instances % shard_ != 0) {
      throw InvalidInput(fmt::format("a shard group of {} ranks does not divide {} ranks", shard_, work.instances));
    }
    for (std::size_t phase = 0; phase < shapes.size(); ++phase) {
      passes_.emplace_back();
      for (const auto& micro_batch : work.work[phase]) {
        std::vector<PassSeconds>& passes = passes_.back().emplace_back();
        for (const PhaseWork& lane : micro_batch) {
          passes.push_back(pass_seconds(shapes[phase], lane, cluster, parallelism));
        }
      }
    }
    make_groups();
    last_.assign(lanes_, no_task);
    second_last_.assign(lanes_, no_task);
    reduced_.assign(lanes_, no_task);
    const std::size_t passes = 2 * units_.size() * (work.work.back().size() + 1);
    graph_.reserve(passes * lanes_, passes * lanes_ * 3);
  }

  PlayedStep play() {
    add_inputs();
    if (parallelism_.data == DataParallel::distributed_optimizer) gather_once();
    outputs_ready_.resize(routes_.size());
    gradients_ready_.resize(routes_.size());
    const auto llm = static_cast<std::size_t>(
        std::find_if(units_.begin(), units_.end(), [&](const Unit& u) { return u.phase + 1 == shapes_.size(); }) -
        units_.begin());
    for (std::size_t u = 0; u < llm; ++u) forward(u, 0);
    const auto micro_batches = static_cast<std::uint32_t>(work_.work.back().size());
    for (std::uint32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      const bool last = micro_batch + 1 == micro_batches;
      for (std::size_t u = llm; u < units_.size(); ++u) forward(u, micro_batch);
      for (std::size_t u = units_.size(); u-- > llm;) backward(u, micro_batch, last);
    }
    for (std::size_t u = llm; u-- > 0;) backward(u, 0, true);
    add_optimizer();

    std::optional<FluidNetwork> network;
    if (fabric_) network = fabric_->network();
    PlayedStep played = graph_.play(units_, shapes_, network ? &*network : nullptr);
    measure_work(shapes_, work_, cluster_, parallelism_, played.result);
    measure_exchanges(played);
    measure_memory(played);
    return played;
  }

 private:
  using LaneTasks = std::vector<std::vector<TaskId>>;  ///< lane → its tasks on NVLink and NIC

  /// GPUs of one collective, the lanes that stand for them, and the links they take.
  struct Collective {
    Group group;
    std::vector<std::uint32_t> lanes;
    ResourceId links = no_resource;  ///< or, in a fluid network, the ring's path
    double scale = 1;                ///< the slowest link of all
  };

  /// `members` instances that are `stride` apart, with all context-parallel GPUs of each or with one.
  Collective make_collective(std::uint32_t first, std::uint32_t members, std::uint32_t stride, bool whole_instances) {
    Collective c;
    c.group = whole_instances
                  ? strided_group(members * parallelism_.context, parallelism_.tensor, cluster_.gpus_per_node)
                  : strided_group(members, stride * parallelism_.stage_gpus(), cluster_.gpus_per_node);
    for (std::uint32_t m = 0; m < members; ++m) {
      const std::uint32_t lane = first + m * stride;
      if (lane >= lanes_) break;  // one lane stands for all
      c.lanes.push_back(lane);
      c.scale = std::max(c.scale, graph_.link_scale(lane));
    }
    c.links = fabric_ ? (c.lanes.size() > 1 ? graph_.add_path(fabric_->ring(c.lanes)) : no_resource)
                      : graph_.link_group(c.group.nodes() > 1 ? Link::inter_node : Link::intra_node, c.lanes);
    return c;
  }

  /// Instances as the fabric's ranks: the links of all GPUs of one stand together.
  static Fabric make_fabric(const Exchanges& exchanges, const Cluster& cluster, const Parallelism& parallelism) {
    return {cluster.links, cluster.exchange_rates(parallelism.stage_gpus()), exchanges.topology};
  }

  void make_groups() {
    if (sharded() && shard_ * parallelism_.context > 1) {
      for (std::uint32_t first = 0; first < lanes_; first += shard_) {
        groups_.push_back(make_collective(first, shard_, 1, true));
      }
    }
    const std::uint32_t replicas = work_.instances / shard_;
    if (replicas * (sharded() ? 1 : parallelism_.context) == 1) return;
    for (std::uint32_t place = 0; place < std::min(shard_, lanes_); ++place) {
      replicas_.push_back(make_collective(place, replicas, shard_, !sharded()));
    }
  }

  [[nodiscard]] bool sharded() const { return parallelism_.data == DataParallel::fsdp; }

  /// Ring of `bytes` (an all-reduce is two), or `seconds` long where links are not a network.
  TaskId add_collective(const Collective& collective, double bytes, double seconds, Activity activity,
                        std::size_t unit) {
    const TaskTag tag{activity, static_cast<std::uint16_t>(unit), collective.lanes.front(), 0};
    if (!fabric_ || collective.lanes.size() == 1 || bytes <= 0) {
      return graph_.add(fabric_ ? no_resource : collective.links, seconds * collective.scale, tag);
    }
    // All tensor-parallel GPUs of an instance run such a ring at the same time, over links that stand together.
    return graph_.add_flow(collective.links, bytes * parallelism_.stage_gpus() * collective.scale,
                           ring_latency(collective.group, cluster_.links), 0, tag);
  }
  TaskId add_ring(const Collective& collective, double bytes, Activity activity, std::size_t unit) {
    return add_collective(collective, bytes, ring_seconds(bytes, collective.group, cluster_.links), activity, unit);
  }

  [[nodiscard]] double own_bytes(std::size_t u, double bytes_per_parameter) const {
    return units_[u].parameters / parallelism_.tensor * bytes_per_parameter;
  }

  void forward(std::size_t u, std::uint32_t micro_batch) {
    add_compute(u, micro_batch, Activity::forward, false);
    if (!units_[u].last) return;
    for (std::size_t r = 0; r < routes_.size(); ++r) {
      if (routes_[r].from == units_[u].phase) outputs_ready_[r] = add_exchange(routes_[r]);
    }
  }

  void backward(std::size_t u, std::uint32_t micro_batch, bool last_micro_batch) {
    const bool reduces = last_micro_batch || (sharded() && cluster_.software.reduce_every_micro_batch);
    add_compute(u, micro_batch, Activity::backward, reduces);
    if (reduces) add_reduction(u);
    if (!units_[u].first || !last_micro_batch) return;
    for (std::size_t r = routes_.size(); r-- > 0;) {
      const Route& route = routes_[r];
      if (!route.is_input() && route.to == units_[u].phase) gradients_ready_[r] = add_exchange(way_back(route));
    }
  }

  /// Weights of unit `u` for every group: all its lanes must have come within one unit of needing them. False if they
  /// are there.
  bool gather(std::size_t u) {
    gathered_.assign(lanes_, no_task);
    if (!sharded() || gathered_unit_ == u) return false;  // still there from the pass before
    gathered_unit_ = u;
    for (const Collective& group : groups_) {
      const TaskId task = add_ring(group, own_bytes(u, cluster_.software.parameter_bytes), Activity::gather, u);
      for (const std::uint32_t lane : group.lanes) {
        graph_.depend(second_last_[lane], task);
        gathered_[lane] = task;
      }
    }
    return true;
  }

  /// Distributed optimizer: all weights, in the order in which they are needed.
  void gather_once() {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      weights_.emplace_back(lanes_, no_task);
      for (const Collective& group : replicas_) {
        const TaskId task = add_ring(group, own_bytes(u, cluster_.software.parameter_bytes), Activity::gather, u);
        for (const std::uint32_t lane : group.lanes) weights_[u][lane] = task;
      }
    }
  }

  /// Seconds by which collectives that run beside a pass slow it down: they take multiprocessors and memory bandwidth.
  [[nodiscard]] double interference(std::size_t u, bool gathers, bool reduces) const {
    if (groups_.empty()) return 0;
    const Software& software = cluster_.software;
    const Group group = groups_.front().group;
    double seconds = gathers ? ring_seconds(own_bytes(u, software.parameter_bytes), group, cluster_.links) : 0;
    if (reduces) seconds += ring_seconds(own_bytes(u, software.reduced_gradient_bytes), group, cluster_.links);
    return seconds * software.collective_interference;
  }

  void add_compute(std::size_t u, std::uint32_t micro_batch, Activity activity, bool reduces) {
    const Unit& unit = units_[u];
    const bool gathers = gather(u);
    const double slower = interference(u, gathers, reduces);
    const bool forward = activity == Activity::forward;
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
      const PassSeconds& pass = passes_[unit.phase][micro_batch][lane];
      const TaskId task = graph_.add_compute((forward ? pass.forward(unit) : pass.backward(unit)) + slower,
                                             {activity, static_cast<std::uint16_t>(u), lane, micro_batch});
      graph_.depend(gathered_[lane], task);
      if (forward && micro_batch == 0 && !weights_.empty()) graph_.depend(weights_[u][lane], task);
      second_last_[lane] = std::exchange(last_[lane], task);
    }
    if (micro_batch > 0) return;
    for (std::size_t r = 0; r < routes_.size(); ++r) {
      const Route& route = routes_[r];
      if (forward && unit.first && route.to == unit.phase) depend_on(outputs_ready_[r]);
      if (!forward && unit.last && route.from == unit.phase) depend_on(gradients_ready_[r]);
    }
  }

  /// The latest pass of every lane waits for its part of an exchange.
  void depend_on(const LaneTasks& exchange) {
    for (std::uint32_t lane = 0; lane < exchange.size(); ++lane) {
      for (const TaskId task : exchange[lane]) graph_.depend(task, last_[lane]);
    }
  }

  /// Gradients of unit `u`: reduced and scattered in the group, then summed over the groups.
  void add_reduction(std::size_t u) {
    const double bytes = own_bytes(u, cluster_.software.reduced_gradient_bytes);
    std::vector<TaskId> before = last_;
    const auto follow = [&](const Collective& group, TaskId task) {
      for (const std::uint32_t lane : group.lanes) {
        graph_.depend(before[lane], task);
        before[lane] = task;
      }
    };
    for (const Collective& group : groups_) follow(group, add_ring(group, bytes, Activity::reduce, u));
    for (const Collective& group : replicas_) {
      if (parallelism_.data == DataParallel::distributed_optimizer) {
        follow(group, add_ring(group, bytes, Activity::reduce, u));
      } else {
        const double seconds = all_reduce_seconds(bytes / shard_, group.group, cluster_.links);
        follow(group, add_collective(group, 2 * bytes / shard_, seconds, Activity::reduce, u));
      }
    }
    reduced_ = std::move(before);
  }

  /// One stage of an exchange: tasks of every lane, all after `barrier`.
  LaneTasks add_stage(const std::vector<const ExchangePlan*>& plans, TaskId barrier, Activity activity,
                      std::uint32_t phase) {
    return fabric_ ? add_messages(plans, barrier, activity, phase) : add_transfers(plans, barrier, activity, phase);
  }

  [[nodiscard]] TaskTag exchange_tag(Activity activity, std::uint32_t phase, std::uint32_t lane) const {
    return {activity, static_cast<std::uint16_t>(phase), lane, static_cast<std::uint32_t>(exchanges_.size())};
  }

  /// Endpoints: what a lane sends and receives, one task a link.
  LaneTasks add_transfers(const std::vector<const ExchangePlan*>& plans, TaskId barrier, Activity activity,
                          std::uint32_t phase) {
    LaneTasks tasks(lanes_);
    const std::vector<LinkTraffic> traffic = stage_traffic(plans, topology_, rates_);
    for (std::uint32_t lane = 0; lane < traffic.size(); ++lane) {
      for (const Link link : {Link::intra_node, Link::inter_node}) {
        const double seconds = traffic[lane].seconds(link, rates_);
        if (seconds == 0) continue;
        const TaskId task =
            graph_.add(graph_.link(link, lane), seconds * graph_.link_scale(lane), exchange_tag(activity, phase, lane));
        graph_.depend(barrier, task);
        tasks[lane].push_back(task);
      }
    }
    return tasks;
  }

  /// A fluid network: one flow a message, which both ends wait for.
  LaneTasks add_messages(const std::vector<const ExchangePlan*>& plans, TaskId barrier, Activity activity,
                         std::uint32_t phase) {
    LaneTasks tasks(lanes_);
    const std::vector<Message> all = stage_messages(plans);
    const std::vector<Nanoseconds> setup = setup_times(all, topology_, rates_);
    const Nanoseconds linger = linger_time(all, *fabric_, exchange_tolerance);
    for (std::size_t m = 0; m < all.size(); ++m) {
      const auto [from, to, bytes] = all[m];
      const double scale = std::max(graph_.link_scale(from), graph_.link_scale(to));
      const TaskId task = graph_.add_flow(graph_.add_path(fabric_->path(from, to)), static_cast<double>(bytes) * scale,
                                          to_seconds(setup[m]), linger, exchange_tag(activity, phase, from));
      graph_.depend(barrier, task);
      tasks[from].push_back(task);
      tasks[to].push_back(task);
    }
    return tasks;
  }

  /// Bytes of all that a route carries, wherever it ends up.
  [[nodiscard]] static double all_bytes(const ExchangePlan& plan) {
    double bytes = 0;
    for (std::size_t f = 0; f < plan.fields(); ++f) {
      for (const std::uint64_t elements : plan.send_elements[f]) {
        bytes += static_cast<double>(elements) * static_cast<double>(plan.payload[f].field.element_bytes);
      }
    }
    return bytes;
  }

  /// Everybody's outputs to everybody, in a ring through all instances.
  TaskId add_all_gather(const ExchangePlan& plan, Activity activity, std::uint32_t phase) {
    if (everyone_.lanes.empty()) everyone_ = make_collective(0, lanes_, 1, false);
    return add_ring(everyone_, all_bytes(plan) / parallelism_.stage_gpus(), activity, phase);
  }

  /// Every stage starts when all lanes are ready, and ends per lane when its own bytes are through.
  LaneTasks add_exchange(const Route& route) {
    const TaskId begin = graph_.add_barrier();
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) graph_.depend(last_[lane], begin);
    Exchange exchange{begin, {}};
    LaneTasks tasks(lanes_);
    if (gathers_all_) {
      const TaskId task = add_all_gather(route.exchange, Activity::exchange, route.from);
      graph_.depend(begin, task);
      for (std::vector<TaskId>& lane : tasks) lane.push_back(task);
      exchange.tasks.push_back(task);
    } else {
      TaskId barrier = begin;
      for (const std::vector<const ExchangePlan*>& plans : route_stages(route)) {
        if (barrier == no_task) {
          barrier = graph_.add_barrier();
          graph_.depend(begin, barrier);  // stages before it may have nothing to send
          for (const TaskId task : exchange.tasks) graph_.depend(task, barrier);
        }
        const LaneTasks stage = add_stage(plans, barrier, Activity::exchange, route.from);
        for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
          tasks[lane].insert(tasks[lane].end(), stage[lane].begin(), stage[lane].end());
          exchange.tasks.insert(exchange.tasks.end(), stage[lane].begin(), stage[lane].end());
        }
        barrier = no_task;
      }
    }
    exchanges_.push_back(std::move(exchange));
    return tasks;
  }

  /// Raw inputs of the next step, of the size of this step's, at the start of the forward pass. Nothing waits for them.
  void add_inputs() {
    for (const Route& route : routes_) {
      if (!route.is_input()) continue;
      if (gathers_all_) {
        (void)add_all_gather(route.exchange, Activity::input, route.to);
        continue;
      }
      for (const std::vector<const ExchangePlan*>& plans : route_stages(route)) {
        (void)add_stage(plans, no_task, Activity::input, route.to);
      }
    }
  }

  [[nodiscard]] double all_parameters() const {
    return std::accumulate(units_.begin(), units_.end(), 0.0,
                           [](double sum, const Unit& unit) { return sum + unit.parameters; });
  }

  void add_optimizer() {
    if (parallelism_.trainable == Trainable::adapters) return;
    const double seconds = optimizer_seconds(all_parameters() / parallelism_.tensor,
                                             parallelism_.optimizer_shards(work_.instances), cluster_);
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
      const TaskId task = graph_.add_compute(seconds, {Activity::optimizer, 0, lane, 0});
      // Reductions of a lane run one after the other on one link, so the last one ends last.
      graph_.depend(reduced_[lane], task);
    }
  }

  void measure_exchanges(PlayedStep& played) const {
    const Schedule& schedule = played.schedule;
    for (const auto& [barrier, tasks] : exchanges_) {
      Nanoseconds end = schedule.finish[barrier];
      for (const TaskId task : tasks) end = std::max(end, schedule.finish[task]);
      played.result.exchange_seconds += to_seconds(end - schedule.finish[barrier]);
    }
    for (const Route& route : routes_) {
      const Traffic moved = gathers_all_ ? gathered_traffic(route.exchange) : traffic(route, topology_);
      if (route.is_input()) {
        played.result.input_intra_node_bytes += moved.intra_node_bytes;
        played.result.input_inter_node_bytes += moved.inter_node_bytes;
      } else {
        played.result.output_intra_node_bytes += 2 * moved.intra_node_bytes;  // there, and gradients back
        played.result.output_inter_node_bytes += 2 * moved.inter_node_bytes;
      }
    }
  }

  /// In a ring every byte enters every other node once, and every other rank of each node once.
  [[nodiscard]] Traffic gathered_traffic(const ExchangePlan& plan) const {
    const double bytes = all_bytes(plan);
    const double nodes = topology_.nodes();
    Traffic sum;
    sum.inter_node_bytes = static_cast<std::uint64_t>(bytes * (nodes - 1));
    sum.intra_node_bytes = static_cast<std::uint64_t>(bytes * (lanes_ - nodes));
    return sum;
  }

  struct ExchangeBuffers {
    std::vector<double> staging;  ///< lane → bytes that are sent from, received in and passed on
    std::vector<double> peers;    ///< lane → ranks that it sends to
  };

  [[nodiscard]] ExchangeBuffers exchange_buffers() const {
    ExchangeBuffers buffers{std::vector<double>(lanes_, 0), std::vector<double>(lanes_, 0)};
    for (const Route& route : routes_) {
      if (route.is_input() || route.exchange.identity) continue;
      const ExchangePlan& plan = route.exchange;
      if (gathers_all_) {
        for (double& bytes : buffers.staging) bytes += all_bytes(plan);
        continue;
      }
      for (std::size_t f = 0; f < plan.fields(); ++f) {
        for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
          buffers.staging[lane] += static_cast<double>(plan.send_elements[f][lane] + plan.receive_elements[f][lane]) *
                                   static_cast<double>(plan.payload[f].field.element_bytes);
        }
      }
      for (const std::vector<const ExchangePlan*>& plans : route_stages(route)) {
        const std::vector<LinkTraffic> traffic = stage_traffic(plans, topology_, rates_);
        for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
          buffers.peers[lane] += traffic[lane].peers[0] + traffic[lane].peers[1];
        }
      }
      if (!route.stages) continue;
      const std::vector<std::uint64_t> passed_on = staging_bytes(*route.stages);
      for (std::uint32_t lane = 0; lane < lanes_; ++lane) buffers.staging[lane] += static_cast<double>(passed_on[lane]);
    }
    return buffers;
  }

  void measure_memory(PlayedStep& played) const {
    const ExchangeBuffers buffers = exchange_buffers();
    double largest_unit = 0;
    for (const Unit& unit : units_) largest_unit = std::max(largest_unit, unit.parameters);
    const Memory resident = resident_memory(all_parameters(), largest_unit, work_.instances, cluster_, parallelism_);
    double most = -1;
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
      for (std::size_t m = 0; m < work_.work.back().size(); ++m) {
        Memory memory = resident;
        for (std::size_t phase = 0; phase < shapes_.size(); ++phase) {
          const bool llm = phase + 1 == shapes_.size();
          add_activations(memory, phase, shapes_[phase], work_.work[phase][llm ? m : 0][lane],
                          static_cast<double>(shapes_[phase].transformer.layers), cluster_, parallelism_);
        }
        add_logits(memory, shapes_.back(), work_.work.back()[m][lane], cluster_, parallelism_);
        memory.exchange = buffers.staging[lane] / parallelism_.stage_gpus();
        memory.communication = buffers.peers[lane] * cluster_.software.channel_buffer_bytes;
        add_fragmentation(memory, cluster_);
        if (memory.total() <= most) continue;
        most = memory.total();
        played.result.peak_memory = memory;
        played.result.peak_lane = lane;
      }
    }
  }

  struct Exchange {
    TaskId barrier;
    std::vector<TaskId> tasks;
  };

  const std::vector<PhaseShape>& shapes_;
  const StepWork& work_;
  std::span<const Route> routes_;
  const Topology& topology_;
  bool gathers_all_;
  std::optional<Fabric> fabric_;  ///< set: links are a fluid network
  const Cluster& cluster_;
  const Parallelism& parallelism_;
  LinkRates rates_ = cluster_.exchange_rates(parallelism_.stage_gpus());
  std::uint32_t lanes_;  ///< instances that are simulated
  std::uint32_t shard_;
  std::vector<Unit> units_;
  std::vector<std::vector<std::vector<PassSeconds>>> passes_;  ///< phase → micro-batch → lane
  StepGraph graph_;
  std::vector<Collective> groups_;    ///< share states
  std::vector<Collective> replicas_;  ///< hold the same
  Collective everyone_;               ///< for all-gathers
  std::vector<TaskId> last_;          ///< lane → its latest pass
  std::vector<TaskId> second_last_;   ///< the one before it: when it ends, one more unit may be gathered
  std::vector<TaskId> gathered_;      ///< lane → weights of the current unit
  std::size_t gathered_unit_ = ~std::size_t{0};
  std::vector<std::vector<TaskId>> weights_;  ///< distributed optimizer: unit → lane → its weights
  std::vector<TaskId> reduced_;               ///< lane → reduction of the latest unit
  std::vector<LaneTasks> outputs_ready_;      ///< route → its forward exchange
  std::vector<LaneTasks> gradients_ready_;    ///< route → its backward exchange
  std::vector<Exchange> exchanges_;
};

}  // namespace

PlayedStep play_step(const std::vector<PhaseShape>& shapes, const StepWork& work, const Exchanges& exchanges,
                     const Cluster& cluster, const Parallelism& parallelism, const Conditions& conditions) {
  return DataParallelStep(shapes, work, exchanges, cluster, parallelism, conditions).play();
}

}  // namespace orch::sim
