// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/connection_owners.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/addresses.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

ConnectionOwners::Directives ConnectionOwners::Outbox::Take() {
  Directives directives = std::move(refusals);
  for (auto& [link, its] : queries) directives.push_back({link, std::move(its)});
  for (auto& [link, its] : answers) directives.push_back({link, std::move(its)});
  return directives;
}

// ---- Nodes

void ConnectionOwners::Add(LinkId link, const Join& join, const std::string& seen) {
  Node& node = nodes_[link];
  node.host = join.host;
  node.seen = PlainAddress(seen);
  std::set<std::string> addresses;
  for (const std::string& address : join.addresses) addresses.insert(PlainAddress(address));
  if (!node.seen.empty()) addresses.insert(node.seen);
  node.addresses.assign(addresses.begin(), addresses.end());
  for (const std::string& address : node.addresses) by_address_[address].insert(link);
}

ConnectionOwners::Directives ConnectionOwners::Remove(LinkId link, TimePoint now) {
  const auto node = nodes_.find(link);
  if (node == nodes_.end()) return {};
  for (const std::string& address : node->second.addresses) {
    const auto its = by_address_.find(address);
    its->second.erase(link);
    if (its->second.empty()) by_address_.erase(its);
  }
  nodes_.erase(node);
  Outbox out;
  for (auto it = queries_.begin(); it != queries_.end();) {
    Query& query = it->second;
    query.without.erase(link);
    if (query.unknown == link) query.unknown.reset();
    if (query.other == link) query.other.reset();
    const bool lacked = query.unanswered.erase(link) > 0;
    const bool over = query.from == link || (lacked && Settle(it->first, query, out));
    it = over ? queries_.erase(it) : std::next(it);
  }
  AskAllIfDue(now, out);
  return out.Take();
}

// ---- Asking

ConnectionOwners::Directives ConnectionOwners::Ask(LinkId from, const OwnerQueries& queries,
                                                   TimePoint now) {
  Outbox out;
  for (const OwnerQuery& asked : queries.queries) {
    if (queries_.size() >= kOwnerQueriesMax) break;
    const std::uint64_t id = ++last_id_;
    Query& query = queries_[id];
    query.from = from;
    query.query = asked;
    query.query.connection.client_address = PlainAddress(asked.connection.client_address);
    query.deadline = now + kOwnerReplyTimeout;
    AskByAddress(id, query, out);
    if (Settle(id, query, out)) queries_.erase(id);
  }
  AskAllIfDue(now, out);
  return out.Take();
}

void ConnectionOwners::AskByAddress(std::uint64_t id, Query& query, Outbox& out) {
  const auto nodes = by_address_.find(query.query.connection.client_address);
  if (nodes == by_address_.end()) return;
  for (const LinkId link : nodes->second) {
    if (link != query.from && !query.without.contains(link)) Send(id, query, link, out);
  }
}

void ConnectionOwners::AskAllIfDue(TimePoint now, Outbox& out) {
  if (asked_all_ && now < *asked_all_ + kAskAllInterval) return;
  const std::size_t count = std::clamp<std::size_t>(
      kAskAllQueriesMax / std::max<std::size_t>(1, nodes_.size()), 1, kAskAllConnectionsMax);
  std::set<std::string> addresses;
  std::deque<std::uint64_t> later;
  for (const std::uint64_t id : std::exchange(wait_for_all_, {})) {
    const auto it = queries_.find(id);
    if (it == queries_.end() || it->second.stage != Stage::kWaitsForAll) continue;
    Query& query = it->second;
    if (addresses.size() >= count ||
        !addresses.insert(query.query.connection.client_address).second) {
      later.push_back(id);
      continue;
    }
    AskAll(id, query, out);
    if (Settle(id, query, out)) queries_.erase(it);
  }
  wait_for_all_ = std::move(later);
  if (!addresses.empty()) asked_all_ = now;
}

void ConnectionOwners::AskAll(std::uint64_t id, Query& query, Outbox& out) {
  query.stage = Stage::kAll;
  for (const auto& entry : nodes_) {
    const LinkId link = entry.first;
    if (link != query.from && !query.without.contains(link)) Send(id, query, link, out);
  }
}

void ConnectionOwners::Learn(LinkId link, const std::string& address, Outbox& out) {
  const auto node = nodes_.find(link);
  if (node == nodes_.end() || node->second.addresses.size() >= 2 * kNodeAddressesMax) return;
  if (!by_address_[address].insert(link).second) return;
  node->second.addresses.push_back(address);
  for (const std::uint64_t id : wait_for_all_) {
    const auto it = queries_.find(id);
    if (it == queries_.end() || it->second.stage != Stage::kWaitsForAll) continue;
    Query& query = it->second;
    if (query.query.connection.client_address != address || query.from == link) continue;
    query.stage = Stage::kByAddress;
    Send(id, query, link, out);
  }
}

void ConnectionOwners::Send(std::uint64_t id, Query& query, LinkId to, Outbox& out) {
  query.unanswered.insert(to);
  OwnerQuery sent = query.query;
  sent.id = id;
  sent.from_seen_address = nodes_.at(to).seen == sent.connection.client_address;
  out.queries[to].queries.push_back(std::move(sent));
}

// ---- Answers

ConnectionOwners::Directives ConnectionOwners::Receive(LinkId from, const OwnerAnswers& answers,
                                                       TimePoint now) {
  Outbox out;
  for (const OwnerAnswer& answer : answers.answers) {
    const auto it = queries_.find(answer.id);
    if (it == queries_.end() || it->second.unanswered.erase(from) == 0) continue;
    Query& query = it->second;
    const bool has_it =
        answer.ownership == Ownership::kOwn || answer.ownership == Ownership::kOtherUser;
    if (has_it && query.stage == Stage::kAll)
      Learn(from, query.query.connection.client_address, out);
    bool over = false;
    switch (answer.ownership) {
      case Ownership::kOwn:
        Reply(query, Ownership::kOwn, from, out);
        over = true;
        break;
      case Ownership::kOtherUser:
        query.other = from;
        query.user = answer.user;
        break;
      case Ownership::kUnknown:
        if (query.stage == Stage::kByAddress) query.unknown = from;
        break;
      case Ownership::kNone:
      case Ownership::kNoReply:
        if (query.stage == Stage::kByAddress) query.without.insert(from);
        break;
    }
    if (over || Settle(it->first, query, out)) queries_.erase(it);
  }
  AskAllIfDue(now, out);
  return out.Take();
}

bool ConnectionOwners::Settle(std::uint64_t id, Query& query, Outbox& out) {
  if (!query.unanswered.empty() || query.stage == Stage::kWaitsForAll) return false;
  // Where one node sees the connection, another that sees nothing is not believed instead.
  if (query.other) {
    Refuse(query, out);
    return true;
  }
  if (query.unknown) {
    Reply(query, Ownership::kUnknown, query.unknown, out);
    return true;
  }
  if (query.stage == Stage::kAll || !IsAnyoneLeftFor(query)) {
    Refuse(query, out);
    return true;
  }
  query.stage = Stage::kWaitsForAll;
  wait_for_all_.push_back(id);
  return false;
}

bool ConnectionOwners::IsAnyoneLeftFor(const Query& query) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    return entry.first != query.from && !query.without.contains(entry.first);
  });
}

void ConnectionOwners::Reply(const Query& query, Ownership ownership, std::optional<LinkId> about,
                             Outbox& out) {
  OwnerAnswer answer{.id = query.query.id, .ownership = ownership};
  if (ownership == Ownership::kOtherUser) answer.user = query.user;
  if (about) {
    if (const auto node = nodes_.find(*about); node != nodes_.end())
      answer.host = node->second.host;
  }
  out.answers[query.from].answers.push_back(std::move(answer));
}

void ConnectionOwners::Refuse(const Query& query, Outbox& out) {
  Reply(query, query.other ? Ownership::kOtherUser : Ownership::kNone, query.other, out);
  if (query.other) {
    out.refusals.push_back({*query.other, ConnectionRefused{query.query.connection, query.user}});
    return;
  }
  for (const LinkId link : query.without)
    out.refusals.push_back({link, ConnectionRefused{query.query.connection, std::nullopt}});
}

// ---- Time

// Their deadlines are in the order of their ids.
void ConnectionOwners::EndLate(TimePoint now, Outbox& out) {
  while (!queries_.empty() && queries_.begin()->second.deadline <= now) {
    const Query& query = queries_.begin()->second;
    if (query.other) {
      Refuse(query, out);
    } else if (query.unknown) {
      Reply(query, Ownership::kUnknown, query.unknown, out);
    } else {
      Reply(query, Ownership::kNoReply,
            query.unanswered.empty() ? std::nullopt : std::optional(*query.unanswered.begin()),
            out);
    }
    queries_.erase(queries_.begin());
  }
}

ConnectionOwners::Directives ConnectionOwners::Tick(TimePoint now) {
  Outbox out;
  EndLate(now, out);
  AskAllIfDue(now, out);
  return out.Take();
}

std::optional<TimePoint> ConnectionOwners::NextDeadline() const {
  if (queries_.empty()) return std::nullopt;
  std::optional<TimePoint> all;
  if (!wait_for_all_.empty() && asked_all_) all = *asked_all_ + kAskAllInterval;
  return Earliest({queries_.begin()->second.deadline, all});
}

}  // namespace ddprun
