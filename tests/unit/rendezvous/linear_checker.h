// SPDX-License-Identifier: Apache-2.0
// Whether a history of store operations is linearizable: whether each can be given one instant
// between question and answer so that a single plain store, asked in that order, gives the same
// answers.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/values/store_types.h"

namespace ddprun {

// An answer as text. Of an error only its code counts.
inline std::string TextOf(const StoreResult& result) {
  std::string text = std::to_string(static_cast<int>(result.status.code()));
  if (!result.status.ok()) return text;
  text += "/" + std::to_string(result.number);
  for (const std::string& value : result.values) text += "/" + value;
  for (const std::string& key : result.keys) text += "/" + key;
  return text;
}

// So simple that it is right. A wait's time is always over.
struct PlainKeys {
  std::map<std::string, std::string> values;
  std::map<std::string, std::deque<std::string>> queues;
  auto operator<=>(const PlainKeys&) const = default;

  StoreResult Do(const StoreOp& op) {
    using V = StoreVerb;
    StoreResult result;
    const auto set = [&](const std::string& key, const std::string& value) {
      return values[key] = value;
    };
    bool all = true;
    for (const std::string& key : op.keys) all = all && values.contains(key);
    const auto value = [&] { return all ? values[op.keys[0]] : std::string(); };
    switch (op.verb) {
      case V::kSet:
      case V::kMultiSet:
        for (std::size_t i = 0; i < op.keys.size(); ++i) set(op.keys[i], op.values[i]);
        break;
      case V::kAppend:
        set(op.keys[0], value() + op.values[0]);
        break;
      case V::kAdd:
        result.number = std::atoll(value().c_str()) + op.number;
        set(op.keys[0], std::to_string(result.number));
        break;
      case V::kDelete:
        result.number = static_cast<std::int64_t>(values.erase(op.keys[0]));
        break;
      case V::kCompareSet:
        if (all ? value() == op.values[0] : op.values[0].empty()) {
          result.values = {set(op.keys[0], op.values[1])};
        } else {
          result.values = {all ? value() : op.values[0]};
        }
        break;
      case V::kGet:
      case V::kMultiGet:
      case V::kWait:
        if (!all) {
          result.status = absl::DeadlineExceededError("");
        } else if (op.verb != V::kWait) {
          for (const std::string& key : op.keys) result.values.push_back(values[key]);
        }
        break;
      case V::kWaitCount:
        if (std::atoll(value().c_str()) < op.number)
          result.status = absl::DeadlineExceededError("");
        break;
      case V::kCheck:
        result.number = all ? 1 : 0;
        break;
      case V::kNumKeys:
        result.number = static_cast<std::int64_t>(values.size());
        break;
      case V::kListKeys:
        for (const auto& entry : values) result.keys.push_back(entry.first);
        break;
      case V::kQueuePush:
        queues[op.keys[0]].push_back(op.values[0]);
        break;
      case V::kQueuePop:
        if (!queues.contains(op.keys[0])) {
          result.status =
              op.timeout.count() > 0 ? absl::DeadlineExceededError("") : absl::NotFoundError("");
        } else {
          result.values = {queues[op.keys[0]].front()};
          queues[op.keys[0]].pop_front();
          if (queues[op.keys[0]].empty()) queues.erase(op.keys[0]);
        }
        break;
      case V::kQueueLen:
        if (queues.contains(op.keys[0])) {
          result.number = static_cast<std::int64_t>(queues[op.keys[0]].size());
        }
        break;
    }
    return result;
  }
};

// Fed with questions and answers in the order in which they happened. Keeps all that may be so far:
// what the store holds, which of the open operations have changed it, and what each of the others
// could have been answered without changing it.
class LinearChecker {
 public:
  void Asked(int client, StoreOp op) {
    open_[client] = std::move(op);
    std::set<Possible> next;
    for (Possible one : possible_) {
      Look(one);
      next.insert(std::move(one));
    }
    possible_ = std::move(next);
  }

  // False: it cannot be.
  bool Answered(int client, const StoreResult& result) {
    const std::string text = TextOf(result);
    // The agent's own word that a time is over says nothing about keys; the service's names some.
    const bool says_nothing = absl::IsDeadlineExceeded(result.status) && result.keys.empty();
    std::set<Possible> next;
    std::set<Possible> seen = possible_;
    std::vector<Possible> todo(possible_.begin(), possible_.end());
    while (!todo.empty()) {
      Possible one = std::move(todo.back());
      todo.pop_back();
      const auto changed = one.changed.find(client);
      const bool matches = changed != one.changed.end()
                               ? changed->second == text
                               : says_nothing || one.could_give[client].contains(text);
      if (matches) {
        Possible after = one;
        after.changed.erase(client);
        after.could_give.erase(client);
        next.insert(std::move(after));
      }
      if (changed != one.changed.end()) continue;
      for (const auto& [other, op] : open_) {
        if (one.changed.contains(other) || !Changes(op.verb)) continue;
        Possible after = one;
        std::string given = TextOf(after.store.Do(op));
        if (after.store == one.store) continue;
        after.could_give.erase(other);
        after.changed[other] = std::move(given);
        Look(after);
        if (seen.insert(after).second) todo.push_back(std::move(after));
      }
    }
    open_.erase(client);
    possible_ = std::move(next);
    return !possible_.empty();
  }

 private:
  struct Possible {
    PlainKeys store;
    std::map<int, std::string> changed;               // with what it gave
    std::map<int, std::set<std::string>> could_give;  // at any instant since it was asked
    auto operator<=>(const Possible&) const = default;
  };

  // What the open operations would be answered now, where that changes nothing.
  void Look(Possible& one) const {
    for (const auto& [client, op] : open_) {
      if (one.changed.contains(client)) continue;
      PlainKeys store = one.store;
      std::string text = TextOf(store.Do(op));
      if (store == one.store) one.could_give[client].insert(std::move(text));
    }
  }

  std::map<int, StoreOp> open_;
  std::set<Possible> possible_{Possible{}};
};

}  // namespace ddprun
