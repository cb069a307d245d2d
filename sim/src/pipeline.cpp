#include <fmt/format.h>

#include <algorithm>

#include "orchmllm/base/error.hpp"
#include "orchmllm/model/flops.hpp"
#include "orchmllm/sim/collectives.hpp"
#include "step_graph.hpp"

namespace orch::sim {

namespace {

/// Layers of every chunk, in the order in which a micro-batch meets them. Where they do not divide evenly, the chunks
/// with the embedding and the head have one layer less, if that fits; else the first chunks have one more.
std::vector<std::uint64_t> chunk_layers(std::uint64_t layers, std::uint32_t chunks) {
  if (layers < chunks && layers + 2 != chunks) {
    throw InvalidInput(fmt::format("{} layers cannot be cut into {} pipeline chunks", layers, chunks));
  }
  std::vector<std::uint64_t> result(chunks, layers / chunks);
  if (layers % chunks == 0) return result;
  if ((layers + 2) % chunks == 0) {
    std::fill(result.begin(), result.end(), (layers + 2) / chunks);
    --result.front();
    --result.back();
    return result;
  }
  for (std::uint64_t c = 0; c < layers % chunks; ++c) ++result[c];
  return result;
}

/// One pass of one micro-batch through one chunk.
struct Turn {
  bool forward = true;
  std::uint32_t chunk = 0;
  std::uint32_t micro_batch = 0;
};

/// The turns of one stage: forward passes until the pipeline is full, then one forward and one backward, then the rest.
/// With several chunks a stage, micro-batches go through them in groups of as many as there are stages.
std::vector<Turn> turns_of_stage(std::uint32_t stage, std::uint32_t stages, std::uint32_t chunks,
                                 std::uint32_t micro_batches) {
  const std::uint32_t total = micro_batches * chunks;
  const std::uint32_t distance = stages - stage - 1;
  const std::uint32_t warmup = std::min(total, chunks == 1 ? distance : 2 * distance + (chunks - 1) * stages);
  const auto turn = [&](std::uint32_t k, bool forward) {
    if (chunks == 1) return Turn{forward, 0, k};
    const std::uint32_t in_group = k % (stages * chunks);
    const std::uint32_t chunk = in_group / stages;
    return Turn{forward, forward ? chunk : chunks - 1 - chunk, k / (stages * chunks) * stages + in_group % stages};
  };
  std::vector<Turn> turns;
  turns.reserve(2 * std::size_t{total});
  for (std::uint32_t k = 0; k < warmup; ++k) turns.push_back(turn(k, true));
  for (std::uint32_t k = warmup; k < total; ++k) {
    turns.push_back(turn(k, true));
    turns.push_back(turn(k - warmup, false));
  }
  for (std::uint32_t k = total - warmup; k < total; ++k) turns.push_back(turn(k, false));
  return turns;
}

class PipelineStep {
 public:
  PipelineStep(const std::vector<PhaseShape>& shapes, const StepWork& work, const Cluster& cluster,
               const Parallelism& parallelism, const Conditions& conditions)
      : shapes_(shapes),
        work_(work),
        cluster_(cluster),
        parallelism_(parallelism),
        stages_(parallelism.pipeline),
        chunks_(parallelism.virtual_stages),
        micro_batches_(static_cast<std::uint32_t>(work.work.back().size())),
        instances_(work.simulated()),
        graph_(instances_ * stages_, stages_, conditions) {
    if (chunks_ > 1 && micro_batches_ % stages_ != 0) {
      throw InvalidInput(
          fmt::format("{} micro-batches cannot be interleaved over {} pipeline stages: their number must "
                      "be a multiple of the stages",
                      micro_batches_, stages_));
    }
    make_chunks();
    const std::size_t turns = std::size_t{instances_} * stages_ * chunks_ * micro_batches_ * 2;
    forward_.resize(turns / 2);
    backward_.resize(turns / 2);
    graph_.reserve(turns * 2 + units_.size() * instances_ * 4, turns * 4);
  }

  PlayedStep play() {
    for (std::uint32_t stage = 0; stage < stages_; ++stage) add_weights(stage);
    for (std::uint32_t instance = 0; instance < instances_; ++instance) {
      passes_ = instance_passes(instance);
      for (std::uint32_t stage = 0; stage < stages_; ++stage) add_turns(instance, stage);
      add_sends(instance);
    }
    for (std::uint32_t stage = 0; stage < stages_; ++stage) finish(stage);
    PlayedStep played = graph_.play(units_, shapes_);
    measure_work(shapes_, work_, cluster_, parallelism_, played.result);
    measure_memory(played);
    return played;
  }

 private:
  /// Of a micro-batch's way through a chunk.
  struct Passage {
    TaskId first = no_task;
    TaskId last = no_task;
  };

  [[nodiscard]] std::uint32_t lane(std::uint32_t instance, std::uint32_t stage) const {
    return instance * stages_ + stage;
  }
  [[nodiscard]] std::uint32_t place(std::uint32_t stage, std::uint32_t chunk) const { return chunk * stages_ + stage; }
  [[nodiscard]] std::size_t index(std::uint32_t instance, std::uint32_t stage, std::uint32_t chunk,
                                  std::uint32_t micro_batch) const {
    return ((std::size_t{instance} * stages_ + stage) * chunks_ + chunk) * micro_batches_ + micro_batch;
  }

  /// Units of every chunk: all encoders and the embedding on the first, the head on the last.
  void make_chunks() {
    const std::uint32_t all = stages_ * chunks_;
    const std::size_t llm = shapes_.size() - 1;
    const std::vector<std::uint64_t> layers = chunk_layers(shapes_[llm].transformer.layers, all);
    for (std::uint32_t c = 0; c < all; ++c) {
      std::vector<std::uint16_t>& units = chunk_units_.emplace_back();
      const auto add = [&](const Unit& unit) {
        units.push_back(static_cast<std::uint16_t>(units_.size()));
        units_.push_back(unit);
      };
      for (std::size_t phase = 0; c == 0 && phase < llm; ++phase) {
        add(make_unit(shapes_, phase, shapes_[phase].transformer.layers, true, true));
      }
      add(make_unit(shapes_, llm, layers[c], c == 0, c + 1 == all));
    }
  }

  [[nodiscard]] double chunk_parameters(std::uint32_t chunk) const {
    double sum = 0;
    for (const std::uint16_t unit : chunk_units_[chunk]) sum += units_[unit].parameters;
    return sum / parallelism_.tensor;
  }

  [[nodiscard]] Group data_group() const {
    return strided_group(work_.instances * parallelism_.context, parallelism_.tensor, cluster_.gpus_per_node);
  }

  /// Links of all simulated instances on one stage.
  [[nodiscard]] ResourceId stage_links(std::uint32_t stage) {
    std::vector<std::uint32_t> lanes;
    for (std::uint32_t instance = 0; instance < instances_; ++instance) lanes.push_back(lane(instance, stage));
    return graph_.link_group(data_group().nodes() > 1 ? Link::inter_node : Link::intra_node, lanes);
  }

  /// A collective is as slow as the slowest of them.
  [[nodiscard]] double slowest_link(std::uint32_t stage) const {
    double scale = 1;
    for (std::uint32_t instance = 0; instance < instances_; ++instance) {
      scale = std::max(scale, graph_.link_scale(lane(instance, stage)));
    }
    return scale;
  }

  /// Weights that the sharded optimizer has changed, chunk by chunk.
  void add_weights(std::uint32_t stage) {
    links_.push_back(stage_links(stage));
    weights_.emplace_back(chunks_, no_task);
    if (parallelism_.data == DataParallel::replicated || data_group().members == 1) return;
    for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
      const double bytes = chunk_parameters(place(stage, chunk)) * cluster_.software.parameter_bytes;
      weights_[stage][chunk] =
          graph_.add(links_[stage], ring_seconds(bytes, data_group(), cluster_.links) * slowest_link(stage),
                     {Activity::gather, chunk_units_[place(stage, chunk)].back(), stage, 0});
    }
  }

  [[nodiscard]] std::vector<std::vector<PassSeconds>> instance_passes(std::uint32_t instance) const {
    std::vector<std::vector<PassSeconds>> passes(shapes_.size());
    for (std::size_t phase = 0; phase < shapes_.size(); ++phase) {
      for (std::uint32_t m = 0; m < micro_batches_; ++m) {
        if (instances_ == 1 && m > 0 && same(work_.work[phase][m][0], work_.work[phase][m - 1][0])) {
          passes[phase].push_back(passes[phase].back());
        } else {
          passes[phase].push_back(pass_seconds(shapes_[phase], work_.work[phase][m][instance], cluster_, parallelism_));
        }
      }
    }
    return passes;
  }

  [[nodiscard]] static bool same(const PhaseWork& a, const PhaseWork& b) {
    return a.tokens == b.tokens && a.attention_pairs == b.attention_pairs && a.outputs == b.outputs &&
           a.front_end_tokens == b.front_end_tokens;
  }

  void add_turns(std::uint32_t instance, std::uint32_t stage) {
    for (const Turn& turn : turns_of_stage(stage, stages_, chunks_, micro_batches_)) {
      std::vector<std::uint16_t> units = chunk_units_[place(stage, turn.chunk)];
      if (!turn.forward) std::reverse(units.begin(), units.end());
      Passage passage;
      for (const std::uint16_t u : units) {
        const PassSeconds& pass = passes_[units_[u].phase][turn.micro_batch];
        passage.last = graph_.add_compute(
            turn.forward ? pass.forward(units_[u]) : pass.backward(units_[u]),
            {turn.forward ? Activity::forward : Activity::backward, u, lane(instance, stage), turn.micro_batch});
        if (passage.first == no_task) passage.first = passage.last;
      }
      if (turn.forward && turn.micro_batch == 0) graph_.depend(weights_[stage][turn.chunk], passage.first);
      (turn.forward ? forward_ : backward_)[index(instance, stage, turn.chunk, turn.micro_batch)] = passage;
    }
  }

  /// Activations to the next chunk and gradients to the one before.
  void add_sends(std::uint32_t instance) {
    const Link link = stage_link();
    for (std::uint32_t m = 0; m < micro_batches_; ++m) {
      const double bytes = work_.work.back()[m][instance].tokens *
                           static_cast<double>(shapes_.back().transformer.hidden) * activation_bytes /
                           parallelism_.stage_gpus();
      const double seconds = send_seconds(bytes, link, cluster_.links);
      for (std::uint32_t p = 0; p + 1 < stages_ * chunks_; ++p) {
        const std::size_t here = index(instance, p % stages_, p / stages_, m);
        const std::size_t there = index(instance, (p + 1) % stages_, (p + 1) / stages_, m);
        if (stages_ == 1) {
          graph_.depend(forward_[here].last, forward_[there].first);
          graph_.depend(backward_[there].last, backward_[here].first);
          continue;
        }
        const std::uint32_t lower = lane(instance, p % stages_);
        const std::uint32_t upper = lane(instance, (p + 1) % stages_);
        const double slowed = seconds * std::max(graph_.link_scale(lower), graph_.link_scale(upper));
        send(forward_[here].last, forward_[there].first, slowed, lower, m);
        send(backward_[there].last, backward_[here].first, slowed, upper, m);
      }
    }
  }

  void send(TaskId from, TaskId to, double seconds, std::uint32_t from_lane, std::uint32_t micro_batch) {
    const TaskId task = graph_.add(no_resource, seconds, {Activity::send, 0, from_lane, micro_batch});
    graph_.depend(from, task);
    graph_.depend(task, to);
  }

  /// Between the same GPUs of neighbouring stages: all instances lie between them.
  [[nodiscard]] Link stage_link() const {
    return work_.instances * parallelism_.stage_gpus() * stages_ <= cluster_.gpus_per_node ? Link::intra_node
                                                                                           : Link::inter_node;
  }

  /// Gradients of every chunk once its last micro-batch is through, then the optimizer.
  void finish(std::uint32_t stage) {
    double parameters = 0;
    std::vector<TaskId> reduced;
    for (std::uint32_t chunk = chunks_; chunk-- > 0;) {
      const double own = chunk_parameters(place(stage, chunk));
      parameters += own;
      if (data_group().members == 1 || parallelism_.trainable == Trainable::adapters) continue;
      const double bytes = own * cluster_.software.reduced_gradient_bytes;
      const double seconds = parallelism_.data == DataParallel::replicated
                                 ? all_reduce_seconds(bytes, data_group(), cluster_.links)
                                 : ring_seconds(bytes, data_group(), cluster_.links);
      const TaskId task = graph_.add(links_[stage], seconds * slowest_link(stage),
                                     {Activity::reduce, chunk_units_[place(stage, chunk)].back(), stage, 0});
      for (std::uint32_t instance = 0; instance < instances_; ++instance) {
        graph_.depend(backward_[index(instance, stage, chunk, micro_batches_ - 1)].last, task);
      }
      reduced.push_back(task);
    }
    if (parallelism_.trainable == Trainable::adapters) return;
    const double seconds = optimizer_seconds(parameters, parallelism_.optimizer_shards(work_.instances), cluster_);
    for (std::uint32_t instance = 0; instance < instances_; ++instance) {
      const TaskId task = graph_.add_compute(seconds, {Activity::optimizer, 0, lane(instance, stage), 0});
      for (const TaskId before : reduced) graph_.depend(before, task);
    }
  }

  /// Micro-batches whose activations a chunk keeps at once.
  [[nodiscard]] std::vector<std::uint32_t> alive(std::uint32_t stage) const {
    std::vector<std::uint32_t> now(chunks_, 0), sum_peak(chunks_, 0);
    std::uint32_t total = 0;
    std::uint32_t peak = 0;
    for (const Turn& turn : turns_of_stage(stage, stages_, chunks_, micro_batches_)) {
      if (turn.forward) {
        ++now[turn.chunk];
        if (++total > peak) {
          peak = total;
          sum_peak = now;
        }
      } else {
        --now[turn.chunk];
        --total;
      }
    }
    return sum_peak;
  }

  /// The largest micro-batch of each phase stands for all that are alive at once.
  void measure_memory(PlayedStep& played) const {
    double most = -1;
    for (std::uint32_t stage = 0; stage < stages_; ++stage) {
      double parameters = 0;
      for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
        parameters += chunk_parameters(place(stage, chunk)) * parallelism_.tensor;
      }
      const Memory resident = resident_memory(parameters, 0, work_.instances, cluster_, parallelism_);
      const std::vector<std::uint32_t> batches = alive(stage);
      for (std::uint32_t instance = 0; instance < instances_; ++instance) {
        Memory memory = resident;
        memory.activations.assign(shapes_.size(), 0);
        for (std::uint32_t chunk = 0; chunk < chunks_; ++chunk) {
          for (const std::uint16_t u : chunk_units_[place(stage, chunk)]) {
            const Unit& unit = units_[u];
            add_activations(memory, unit.phase, shapes_[unit.phase], largest(unit.phase, instance),
                            static_cast<double>(batches[chunk] * unit.layers), cluster_, parallelism_);
          }
        }
        if (stage + 1 == stages_) {
          add_logits(memory, shapes_.back(), largest(shapes_.size() - 1, instance), cluster_, parallelism_);
        }
        add_fragmentation(memory, cluster_);
        if (memory.total() <= most) continue;
        most = memory.total();
        played.result.peak_memory = memory;
        played.result.peak_lane = lane(instance, stage);
      }
    }
  }

  [[nodiscard]] const PhaseWork& largest(std::size_t phase, std::uint32_t instance) const {
    const auto& batches = work_.work[phase];
    const auto found = std::max_element(batches.begin(), batches.end(), [&](const auto& a, const auto& b) {
      return a[instance].tokens < b[instance].tokens;
    });
    return (*found)[instance];
  }

  const std::vector<PhaseShape>& shapes_;
  const StepWork& work_;
  const Cluster& cluster_;
  const Parallelism& parallelism_;
  std::uint32_t stages_;
  std::uint32_t chunks_;  ///< of a stage
  std::uint32_t micro_batches_;
  std::uint32_t instances_;  ///< that are simulated
  StepGraph graph_;
  std::vector<Unit> units_;
  std::vector<std::vector<std::uint16_t>> chunk_units_;  ///< chunk in order of the model → its units
  std::vector<std::vector<PassSeconds>> passes_;         ///< of the current instance: phase → micro-batch
  std::vector<ResourceId> links_;                        ///< stage → its instances' links
  std::vector<std::vector<TaskId>> weights_;             ///< stage → chunk
  std::vector<Passage> forward_, backward_;              ///< by index()
};

}  // namespace

PlayedStep play_pipeline(const std::vector<PhaseShape>& shapes, const StepWork& work, const Cluster& cluster,
                         const Parallelism& parallelism, const Conditions& conditions) {
  return PipelineStep(shapes, work, cluster, parallelism, conditions).play();
}

}  // namespace orch::sim
