// SPDX-License-Identifier: Apache-2.0
// The address at which the other nodes reach this node's workers, and its interface. The name
// service and the home folder may be slow, so other threads query them.
#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/background.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/options/options.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/base/clock.h"

namespace ddprun {

class OwnAddress {
 public:
  OwnAddress(const Options& options, const Background& background)
      : options_(options), background_(background) {}

  // Looks for it from the next turn on, for --join-timeout.
  void Begin(TimePoint now);
  // Returns it once it is known. Appends what is waited for, or that the time is over, to `events`.
  std::optional<std::string> OnTurn(const RendezvousEndpoint& service, TimePoint now,
                                    std::vector<Event>& events);
  // The node cannot join with it: looks for it again after a pause.
  void Retry(const absl::Status& status, TimePoint now, std::vector<Event>& events);
  const std::string& address() const { return address_; }
  std::optional<TimePoint> NextDeadline() const;
  std::chrono::milliseconds TimeLeft(TimePoint now) const;

  // NAME=VALUE: the interface that Gloo and NCCL are to use. Empty in a round of one node.
  std::vector<std::string> Variables(const Start& start);

 private:
  // Absent: another thread looks for it.
  std::optional<absl::StatusOr<std::string>> Look(const RendezvousEndpoint& service, TimePoint now);
  std::optional<std::string> Take(const absl::StatusOr<std::string>& address, TimePoint now,
                                  std::vector<Event>& events);

  const Options& options_;
  const Background& background_;
  std::string address_;
  TimePoint deadline_;
  std::optional<TimePoint> retry_;                    // when to look again
  std::future<absl::StatusOr<std::string>> looking_;  // that of the route to the master
  std::optional<TimePoint> notice_;  // the user is told then if the name service has not answered
  std::future<bool> nccl_conf_;
  bool nccl_conf_names_interfaces_ = false;
};

}  // namespace ddprun
