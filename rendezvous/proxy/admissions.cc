// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proxy/admissions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

Admissions::Decision Refuse(StoreWorker worker, const TcpConnection& connection,
                            const std::string& why) {
  return {worker, false, RefusalOf(connection, why)};
}

std::string HostOr(const OwnerAnswer& answer, const std::string& text) {
  return answer.host.empty() ? text : absl::StrCat("host ", answer.host);
}

}  // namespace

std::string RefusalOf(const TcpConnection& connection, const std::string& why) {
  return absl::StrCat("refused a connection from ", connection.client_address,
                      " to the workers' store: ", why);
}

std::optional<Admissions::Decision> Admissions::Add(StoreWorker worker, TcpConnection connection,
                                                    TimePoint now) {
  const auto of_address = by_address_.find(connection.client_address);
  const std::size_t count = of_address == by_address_.end() ? 0 : of_address->second;
  if (count >= kAdmissionsPerAddressMax || waiting_.size() >= kAdmissionsMax) {
    return Refuse(worker, connection,
                  absl::StrCat(waiting_.size(), " connections wait already for an answer about ",
                               "which user they are of, ", count, " of them from this address"));
  }
  ++by_address_[connection.client_address];
  waiting_.emplace(worker, Waiting{std::move(connection), now + kOwnerTimeout});
  all_asked_ = false;
  return std::nullopt;
}

void Admissions::Remove(StoreWorker worker) {
  const auto it = waiting_.find(worker);
  if (it == waiting_.end()) return;
  const auto of_address = by_address_.find(it->second.connection.client_address);
  if (--of_address->second == 0) by_address_.erase(of_address);
  waiting_.erase(it);
}

std::vector<OwnerQuery> Admissions::TakeQueries() {
  std::vector<OwnerQuery> queries;
  if (std::exchange(all_asked_, true)) return queries;
  for (auto& [worker, waiting] : waiting_) {
    if (std::exchange(waiting.asked, true)) continue;
    queries.push_back({.id = static_cast<std::uint64_t>(worker), .connection = waiting.connection});
  }
  return queries;
}

void Admissions::AskAgain() {
  for (auto& entry : waiting_) entry.second.asked = false;
  all_asked_ = false;
}

std::optional<Admissions::Decision> Admissions::Receive(const OwnerAnswer& answer) {
  const StoreWorker worker{answer.id};
  const auto it = waiting_.find(worker);
  if (it == waiting_.end()) return std::nullopt;
  const TcpConnection connection = it->second.connection;
  Remove(worker);
  switch (answer.ownership) {
    case Ownership::kOwn:
      return Decision{worker, true, ""};
    case Ownership::kUnknown:
      return Decision{
          worker, true,
          absl::StrCat("let in a connection from ", connection.client_address,
                       " to the workers' store although ", HostOr(answer, "its host"),
                       " cannot see which user it is of; any user of that host gets in")};
    case Ownership::kOtherUser:
      return Refuse(worker, connection,
                    absl::StrCat("it is of user ", answer.user.value_or(-1), " of ",
                                 HostOr(answer, "its host")));
    case Ownership::kNone:
      return Refuse(worker, connection, "no process on another node of this run has it");
    case Ownership::kNoReply:
      break;
  }
  return Refuse(worker, connection,
                absl::StrCat(HostOr(answer, "the nodes of this run"), " did not say within ",
                             kOwnerReplyTimeout.count(), " s which user it is of"));
}

std::vector<Admissions::Decision> Admissions::Tick(TimePoint now) {
  std::vector<Decision> decisions;
  while (!waiting_.empty() && waiting_.begin()->second.deadline <= now) {
    const StoreWorker worker = waiting_.begin()->first;
    decisions.push_back(Refuse(worker, waiting_.begin()->second.connection,
                               absl::StrCat("the rendezvous service did not say within ",
                                            kOwnerTimeout.count(), " s which user it is of")));
    Remove(worker);
  }
  return decisions;
}

std::optional<TimePoint> Admissions::NextDeadline() const {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.begin()->second.deadline;
}

std::vector<StoreWorker> Admissions::TakeAll() {
  std::vector<StoreWorker> workers;
  workers.reserve(waiting_.size());
  for (const auto& entry : waiting_) workers.push_back(entry.first);
  waiting_.clear();
  by_address_.clear();
  return workers;
}

}  // namespace ddprun
