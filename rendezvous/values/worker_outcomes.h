// SPDX-License-Identifier: Apache-2.0
// How the workers of a broken round ended, other than its cause: counted by the way they ended,
// with ranks as ranges, so that a round of 16 384 workers is a few lines. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/values/session_types.h"

namespace ddprun {

// `ranks` ended so. Ways are kept sorted; beyond kOutcomeWaysMax they are counted as one, "in other
// ways" (kExited with code -1).
void AddOutcome(EndKind kind, int code, RankRange ranks, std::vector<WorkerOutcomes>& outcomes);

// Adds the outcomes of a node that is gone.
void AddLostNode(const std::string& host, RankRange ranks, std::vector<WorkerOutcomes>& outcomes);

// One by one to ranges, for the wire.
std::vector<WorkerEnds> Folded(std::vector<WorkerEnds> ends);

// As a verdict has them: without the rank that is the cause (-1: none), cut to what a person reads.
std::vector<WorkerOutcomes> ToShow(const std::vector<WorkerOutcomes>& outcomes, int cause_rank);

// The way they ended, as a sentence's end: "exited with code 1", "were stopped by ddprun".
std::string WayOf(const WorkerOutcomes& outcomes);

// "rank 3", "ranks 0-2, 5", "ranks 0-2, 5 and 12 others".
std::string RanksOf(const WorkerOutcomes& outcomes);

}  // namespace ddprun
