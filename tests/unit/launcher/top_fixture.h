// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "launcher/top/top_state.h"

namespace ddprun {

// A run of so many nodes with so many workers each, which have reported.
inline RunStatus TopRun(const std::string& run_id, int nodes, int workers) {
  RunStatus run;
  run.run_id = run_id;
  run.phase = RunPhase::kSealed;
  run.round = RoundId{2};
  run.world_size = nodes * workers;
  run.nodes_min = run.nodes_max = run.node_count = nodes;
  run.progress = Progress{17, 1, 100.0 * nodes, "images", "data"};
  run.loss = 0.5;
  for (int i = 0; i < nodes; ++i) {
    NodeStatus node{.node_id = NodeId{"id-" + std::to_string(i)},
                    .host = "host-" + std::to_string(i),
                    .address = "10.0.0.1",
                    .node_rank = i,
                    .state = NodeState::kRunning,
                    .rank_first = i * workers,
                    .ranks = workers};
    node.progress = Progress{17, 1, 100, "images", "data"};
    for (int local = 0; local < workers; ++local) {
      node.rank_reports.push_back({.step = 17 + local,
                                   .rate = 50,
                                   .loss = 0.25 * (local + 1),
                                   .section = "forward",
                                   .memory = 1LL << 30,
                                   .gpu_memory = 3LL << 30});
    }
    run.nodes.push_back(std::move(node));
  }
  return run;
}

inline TopEffects Press(Top& top, const std::string& keys, std::size_t page = 10) {
  TopEffects effects;
  for (const char key : keys) {
    TopEffects more = top.OnKey({TopKey::Kind::kCharacter, key}, page);
    effects.insert(effects.end(), more.begin(), more.end());
  }
  return effects;
}

}  // namespace ddprun
