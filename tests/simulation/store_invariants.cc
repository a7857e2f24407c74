// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/store_invariants.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

// "ROUND/KEY/NUMBER"
bool Parse(const std::string& value, std::uint64_t& round, std::string& key, std::int64_t& number) {
  const std::vector<std::string> parts = absl::StrSplit(value, '/');
  if (parts.size() != 3) return false;
  key = parts[1];
  return absl::SimpleAtoi(parts[0], &round) && absl::SimpleAtoi(parts[2], &number);
}

}  // namespace

std::string StoreInvariants::Value(RoundId round, const std::string& key, std::int64_t number) {
  return absl::StrCat(ToNumber(round), "/", key, "/", number);
}

StoreInvariants::Asked StoreInvariants::Ask(Place place, StoreOp op) {
  Asked asked{place, op};
  Key& key = keys_[place][op.keys.front()];
  switch (op.verb) {
    case StoreVerb::kSet: {
      std::uint64_t round = 0;
      std::string name;
      Parse(op.values.front(), round, name, asked.least);
      key.written = std::max(key.written, asked.least);
      break;
    }
    case StoreVerb::kAdd:
      ++key.adds;
      asked.least = key.added;
      break;
    case StoreVerb::kQueuePush:
      key.pushed.insert(op.values.front());
      break;
    default:
      asked.least = key.known;
      break;
  }
  return asked;
}

std::string StoreInvariants::Answer(const Asked& asked, const StoreResult& result) {
  if (!result.status.ok()) return "";
  const std::string& name = asked.op.keys.front();
  Key& key = keys_[asked.place][name];
  switch (asked.op.verb) {
    case StoreVerb::kSet:
      key.known = std::max(key.known, asked.least);
      return "";
    case StoreVerb::kAdd:
      if (!key.sums.insert(result.number).second) {
        return absl::StrCat("adds-happen-once: two ADDs of '", name, "' are answered ",
                            result.number);
      }
      if (result.number > key.adds || result.number <= asked.least) {
        return absl::StrCat("adds-happen-once: ADD of '", name, "' is answered ", result.number,
                            " after ", key.adds, " were asked for and ", asked.least,
                            " acknowledged");
      }
      ++key.added;
      return "";
    case StoreVerb::kGet: {
      std::uint64_t round = 0;
      std::string writer;
      std::int64_t number = 0;
      if (result.values.size() != 1 || !Parse(result.values.front(), round, writer, number) ||
          writer != name) {
        return absl::StrCat("reads-are-of-now: GET of '", name, "' gives what nobody wrote there");
      }
      if (RoundId{round} != asked.place.second) {
        return absl::StrCat("rounds-are-apart: GET of '", name, "' in round ",
                            ToNumber(asked.place.second), " gives what was written in round ",
                            round);
      }
      if (number > key.written || number < asked.least) {
        return absl::StrCat("reads-are-of-now: GET of '", name, "' gives the value ", number,
                            " after ", asked.least, " was acknowledged or read, of ", key.written,
                            " that were asked for");
      }
      key.known = std::max(key.known, number);
      return "";
    }
    case StoreVerb::kQueuePop:
      if (result.values.size() != 1 || !key.pushed.contains(result.values.front()) ||
          !key.popped.insert(result.values.front()).second) {
        return absl::StrCat("values-are-popped-once: QUEUE_POP of '", name,
                            "' gives what was popped before, or what nobody has pushed");
      }
      return "";
    default:
      return "";
  }
}

std::string StoreInvariants::Met(Place place, int world_size) {
  const std::int64_t came = keys_[place]["barrier"].adds;
  if (came >= world_size) return "";
  return absl::StrCat("barriers-hold: a worker passes the barrier of ", world_size, " when ", came,
                      " have come");
}

std::string StoreInvariants::Mutated(RoundId of_op, RoundId of_run, RoundId of_store) const {
  if (of_op == of_run && of_store == of_run) return "";
  return absl::StrCat("rounds-are-apart: an operation of round ", ToNumber(of_op),
                      " changes the store of round ", ToNumber(of_store),
                      " while the run is in round ", ToNumber(of_run));
}

}  // namespace ddprun
