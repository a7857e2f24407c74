// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/own_address.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/node/network.h"
#include "launcher/placement/worker_environ.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

void OwnAddress::Begin(TimePoint now) {
  deadline_ = now + options_.join_timeout;
  retry_ = now;
  if (options_.nodes != 1)  // the workers of one node need no interface
    nccl_conf_ = background_.Start<bool>([] { return NcclConfNamesInterfaces(ReadVariable); });
}

std::optional<absl::StatusOr<std::string>> OwnAddress::Look(const RendezvousEndpoint& service,
                                                            TimePoint now) {
  retry_.reset();
  if (!options_.local_addr.empty()) return options_.local_addr;
  if (service.name.empty()) return options_.master_addr.value_or("127.0.0.1");
  if (IsNumericAddress(service.host)) return AdvertisedAddress(service.host, service.port);
  looking_ = background_.Start<absl::StatusOr<std::string>>(
      [host = service.host, port = service.port] { return AdvertisedAddress(host, port); });
  notice_ = now + kNoticeDelay;
  return std::nullopt;
}

std::optional<std::string> OwnAddress::OnTurn(const RendezvousEndpoint& service, TimePoint now,
                                              std::vector<Event>& events) {
  if (retry_.has_value() && *retry_ <= now) {
    if (const auto found = Look(service, now)) return Take(*found, now, events);
  }
  if (!looking_.valid()) return std::nullopt;
  if (const auto found = TakeResult(looking_)) {
    notice_.reset();
    return Take(*found, now, events);
  }
  const absl::Status slow = absl::DeadlineExceededError(
      absl::StrCat("the name service has not answered for ", service.host));
  if (now >= deadline_) {
    looking_ = {};
    Retry(slow, now, events);
  } else if (notice_.has_value() && now >= *notice_) {
    notice_.reset();
    events.push_back(Connecting{std::string(slow.message()), TimeLeft(now)});
  }
  return std::nullopt;
}

std::optional<std::string> OwnAddress::Take(const absl::StatusOr<std::string>& address,
                                            TimePoint now, std::vector<Event>& events) {
  if (address.ok()) return address_ = *address;
  Retry(address.status(), now, events);
  return std::nullopt;
}

void OwnAddress::Retry(const absl::Status& status, TimePoint now, std::vector<Event>& events) {
  if (now >= deadline_) {
    events.push_back(SessionEnded{absl::DeadlineExceededError(status.message())});
    return;
  }
  events.push_back(Connecting{std::string(status.message()), TimeLeft(now)});
  retry_ = std::min(deadline_, now + kResolveRetryInterval);
}

std::optional<TimePoint> OwnAddress::NextDeadline() const {
  if (!looking_.valid()) return retry_;
  return notice_.has_value() ? std::min(*notice_, deadline_) : deadline_;
}

std::chrono::milliseconds OwnAddress::TimeLeft(TimePoint now) const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - now);
}

std::vector<std::string> OwnAddress::Variables(const Start& start) {
  // Workers of one node need no interface, and programs that connect several one-node runs
  // configure their own network.
  if (start.node_count == 1) return {};
  if (const auto named = TakeResult(nccl_conf_)) nccl_conf_names_interfaces_ = *named;
  const std::optional<Interface> interface = InterfaceOf(address_);
  if (!interface.has_value()) return {};
  return InterfaceVariables(*interface, ReadVariable, nccl_conf_names_interfaces_);
}

}  // namespace ddprun
