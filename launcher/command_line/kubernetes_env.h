// SPDX-License-Identifier: Apache-2.0
// Reads the variables of a pod of an Indexed Job, a JobSet or a TrainJob. Pure.
// deploy/kubernetes/FACTS.md says who sets them.
#pragma once

#include <optional>
#include <string>

#include "launcher/options/options.h"

namespace ddprun {

struct KubernetesPod {
  int index = 0;           // in its Job
  int job_index = 0;       // of its Job among those of the same replicatedJob of a JobSet
  int jobs = 1;            // of that replicatedJob
  std::string first_host;  // the name of pod 0; empty: the variables do not have it
  std::string run_id;      // another one for each attempt; empty: likewise
};

// Absent: this is no pod of an Indexed Job, or a number cannot be parsed.
std::optional<KubernetesPod> ReadKubernetesPod(const GetVariable& get_variable);

// Completes the options of a run over the network (--nnodes above 1, or --rdzv-endpoint): a missing
// rank, a missing address and a missing run id. Without --rdzv-endpoint pod 0 hosts the service
// at all of its addresses: its own name is in the DNS only some time after its start.
// --standalone and -H are not changed.
void FollowKubernetesPod(const GetVariable& get_variable, Reader& reader, Options& options);

// In a pod the verdict is the container's termination message, unless this run is a worker's of
// another one.
void FollowTerminationMessage(const GetVariable& get_variable, Options& options);

}  // namespace ddprun
