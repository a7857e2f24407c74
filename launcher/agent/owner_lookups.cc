// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/owner_lookups.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "proto/text.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/proxy/socket_owner.h"

namespace ddprun {
namespace {

// The store's number is in the high bits of the ids that the service sees.
constexpr unsigned kStoreShift = 48;

// Between two lines about refused connections: whoever is refused may try again and again.
constexpr std::chrono::seconds kRefusedNoticeInterval{10};

std::vector<OwnerAnswer> LookUp(const std::vector<OwnerQuery>& queries) {
  const std::vector<std::string> own = OwnAddresses();
  std::vector<OwnerAnswer> answers;
  answers.reserve(queries.size());
  for (const OwnerQuery& query : queries) answers.push_back(AnswerQuery(query, own));
  return answers;
}

}  // namespace

void OwnerLookups::Ask(std::size_t store, std::vector<OwnerQuery> queries) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (OwnerQuery& query : queries) {
      query.id |= std::uint64_t{store} << kStoreShift;
      asked_.push_back(std::move(query));
    }
  }
  wake_();
}

std::size_t OwnerLookups::TakeStore(OwnerAnswer& answer) {
  const std::uint64_t store = answer.id >> kStoreShift;
  answer.id -= store << kStoreShift;
  return store;
}

// The service gives up what waits for longer than it takes to look up so many.
void OwnerLookups::OnQueries(const OwnerQueries& queries) {
  const std::size_t room = kOwnerQueriesMax - std::min(kOwnerQueriesMax, to_look_up_.size());
  const std::size_t count = std::min(room, queries.queries.size());
  to_look_up_.insert(to_look_up_.end(), queries.queries.begin(),
                     queries.queries.begin() + static_cast<std::ptrdiff_t>(count));
}

std::optional<std::string> OwnerLookups::OnRefused(const ConnectionRefused& refused,
                                                   TimePoint now) {
  if (next_notice_ && now < *next_notice_) return std::nullopt;
  next_notice_ = now + kRefusedNoticeInterval;
  const TcpConnection& connection = refused.connection;
  const std::string what = absl::StrCat(
      "the workers' store at ", HostPort(connection.server_address, connection.server_port),
      " refused a connection from this host's address ", connection.client_address, ", port ",
      connection.client_port, ": ");
  if (refused.user) {
    return absl::StrCat(what, "it is of user ", *refused.user, ", and this node's user is ",
                        geteuid(), "; start what connects there as that user");
  }
  return absl::StrCat(what,
                      "no process in ddprun's network namespace has it; if it is a worker's, ",
                      "start that without a network namespace of its own");
}

std::vector<Report> OwnerLookups::TakeReports(TimePoint now) {
  std::vector<Report> reports;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (std::size_t begin = 0; begin < asked_.size(); begin += kAdmissionsMax) {
      const std::size_t end = std::min(asked_.size(), begin + kAdmissionsMax);
      const auto at = [&](std::size_t i) {
        return asked_.begin() + static_cast<std::ptrdiff_t>(i);
      };
      reports.emplace_back(OwnerQueries{{at(begin), at(end)}});
    }
    asked_.clear();
  }
  TakeFound(reports);
  if (given_up_ && now >= *given_up_) {
    lookup_ = {};
    given_up_.reset();
  }
  BeginLookup(now);
  return reports;
}

void OwnerLookups::TakeFound(std::vector<Report>& reports) {
  auto found = TakeResult(lookup_);
  if (!found) return;
  given_up_.reset();
  const bool blind = std::any_of(found->begin(), found->end(), [](const OwnerAnswer& answer) {
    return answer.ownership == Ownership::kUnknown;
  });
  if (blind && !std::exchange(problem_shown_, true)) {
    problem_ =
        "cannot see which user a connection from this host to the workers' store is of: neither "
        "sock_diag(7) nor /proc/net/tcp can be read; any user of this host gets in there until "
        "ddprun can read one of them";
  }
  reports.emplace_back(OwnerAnswers{*std::move(found)});
}

// On another thread: where a connection is not found, the kernel looks through all of them.
void OwnerLookups::BeginLookup(TimePoint now) {
  if (to_look_up_.empty() || lookup_.valid()) return;
  const std::size_t count = std::min(to_look_up_.size(), kAdmissionsMax);
  const auto end = to_look_up_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<OwnerQuery> queries(to_look_up_.begin(), end);
  to_look_up_.erase(to_look_up_.begin(), end);
  lookup_ = background_.Start<std::vector<OwnerAnswer>>(
      [queries = std::move(queries)] { return LookUp(queries); });
  given_up_ = now + kOwnerReplyTimeout;
}

}  // namespace ddprun
