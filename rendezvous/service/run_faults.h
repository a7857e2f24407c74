// SPDX-License-Identifier: Apache-2.0
// The faults that a run's nodes were asked for on purpose (`ddpctl chaos`) and have not answered
// yet; questions for stacks are asked in the same way. Without a lock: the run calls it under its
// own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/membership/operator_rules.h"

namespace ddprun {

class RunFaults {
 public:
  using Answer = std::function<void(absl::StatusOr<FaultReport>)>;
  struct UnderWay {
    LinkId link;
    FaultRequest request;
    Answer answer;
  };

  // What the node is sent. RESOURCE_EXHAUSTED: too many are under way; `answer` is unchanged then.
  absl::StatusOr<Fault> Begin(const FaultTarget& target, const FaultRequest& request,
                              Answer& answer, const std::string& run_id);
  // The one that the node's report answers. Absent: none of that node's.
  std::optional<UnderWay> Take(LinkId link, std::uint64_t id);
  // The node's stream has ended: returns what is to be called then. It is the report of an agent
  // that has killed itself or left the stream.
  std::vector<std::function<void()>> Fail(LinkId link);

 private:
  std::map<std::uint64_t, UnderWay> under_way_;  // by Fault::id
  std::uint64_t last_ = 0;
};

}  // namespace ddprun
