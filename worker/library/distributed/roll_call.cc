// SPDX-License-Identifier: Apache-2.0
#include "worker/library/distributed/roll_call.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ddprun/detail/interrupt.h"
#include "proto/json_text.h"

namespace ddprun {
namespace {

constexpr const char* kVerdictKey = "ddprun/roll_call/verdict";
constexpr const char* kHeardKey = "ddprun/roll_call/heard";
constexpr const char* kAllHere = "all here: ";
// The other ranks wait this much longer than rank 0, which names the missing ranks.
constexpr std::chrono::seconds kVerdictGrace{5};
// Limit of the ranks beyond its own world that rank 0 looks for, whatever others announce.
constexpr int kBeyondMax = 4096;

constexpr const char* kIncomplete = "the world is not complete: ";
// How many ranks' texts rank 0 reads at a time; one's are some kilobytes.
constexpr int kTextsAtATime = 64;

std::string RankKey(int rank) { return "ddprun/roll_call/rank/" + std::to_string(rank); }

std::string FactsKey(int rank) { return "ddprun/roll_call/facts/" + std::to_string(rank); }

std::string ToText(const SharedFacts& facts) { return JsonText(nlohmann::json(facts)); }

SharedFacts ParseFacts(const std::string& text) {
  return nlohmann::json::parse(text).get<SharedFacts>();
}

// Adds instead of setting, so that a second process of the same rank doubles the number.
void Present(c10d::Store& store, int rank, int world_size) { store.add(RankKey(rank), world_size); }

std::string MissingRanks(c10d::Store& store, const std::vector<std::string>& keys) {
  constexpr int kNamedMax = 8;
  std::string list;
  int missing = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (store.check({keys[i]})) continue;
    if (missing++ < kNamedMax) list += (list.empty() ? "" : ", ") + std::to_string(i);
  }
  if (missing > kNamedMax) list += " and " + std::to_string(missing - kNamedMax) + " more";
  return (missing == 1 ? "rank " : "ranks ") + list;
}

// Describes a rank's world size if it differs from rank 0's; empty if all is well.
std::string Complaint(int rank, long long number, int world_size) {
  if (number == world_size) return "";
  if (number == 2LL * world_size) {
    return "two processes have RANK " + std::to_string(rank) + "; give each its own";
  }
  return "rank " + std::to_string(rank) + " has WORLD_SIZE " + std::to_string(number) +
         ", rank 0 has " + std::to_string(world_size) + "; start all ranks with the same";
}

// What the ranks but 0 have set under key_of(rank), to each(rank, text); until that returns false.
void ReadFromOthers(c10d::Store& store, int world_size,
                    const std::function<std::string(int rank)>& key_of,
                    const std::function<bool(int rank, const std::string& text)>& each) {
  for (int begin = 1; begin < world_size; begin += kTextsAtATime) {
    std::vector<std::string> keys;
    for (int rank = begin; rank < std::min(world_size, begin + kTextsAtATime); ++rank)
      keys.push_back(key_of(rank));
    const auto texts = store.multiGet(keys);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (!each(begin + static_cast<int>(i), std::string(texts[i].begin(), texts[i].end()))) return;
    }
  }
}

// Compares all ranks' facts, once they have joined; empty if all have rank 0's.
std::string FactsThatDiffer(c10d::Store& store, int world_size, const SharedFacts& own) {
  const std::string own_text = ToText(own);
  std::string sentence;
  ReadFromOthers(store, world_size, FactsKey, [&](int rank, const std::string& text) {
    if (text != own_text) sentence = Disagreement(own, rank, ParseFacts(text));
    return sentence.empty();
  });
  return sentence;
}

// Rank 0's part: waits for all ranks and returns the verdict for all.
std::string Judge(c10d::Store& store, int world_size, std::chrono::milliseconds timeout,
                  const SharedFacts& facts) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size; ++rank) keys.push_back(RankKey(rank));
  try {
    store.wait(keys, timeout);
  } catch (const c10::DistStoreError&) {
    return kIncomplete + MissingRanks(store, keys) + " of " + std::to_string(world_size) +
           " did not come within " +
           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(timeout).count()) +
           " s; is every rank started, with the same WORLD_SIZE?";
  }
  const std::vector<std::vector<uint8_t>> numbers = store.multiGet(keys);
  for (int rank = 0; rank < world_size; ++rank) {
    const auto& bytes = numbers[static_cast<std::size_t>(rank)];
    const std::string complaint =
        Complaint(rank, std::stoll(std::string(bytes.begin(), bytes.end())), world_size);
    if (!complaint.empty()) return kIncomplete + complaint;
  }
  const std::string difference = FactsThatDiffer(store, world_size, facts);
  if (!difference.empty()) {
    return "the ranks do not agree: " + difference +
           "; start all ranks with the same settings and the same data";
  }
  return kAllHere + std::to_string(world_size);
}

long long NumberOf(c10d::Store& store, int rank) {
  if (!store.check({RankKey(rank)})) return 0;
  return std::stoll(store.get_to_str(RankKey(rank)));
}

// Counts the processes other than rank 0 that have joined. A rank that joined twice counts as two;
// a rank with a larger WORLD_SIZE may have peers beyond this world.
int PresentOthers(c10d::Store& store, int world_size) {
  int present = 0;
  long long end = world_size;
  for (int rank = 1; rank < end; ++rank) {
    const long long number = NumberOf(store, rank);
    if (number == 0) continue;
    present += number == 2LL * world_size ? 2 : 1;
    if (number != 2LL * world_size)
      end = std::max(end, std::min<long long>(number, 1LL * world_size + kBeyondMax));
  }
  return present;
}

// Rank 0 may serve the store, so it does not leave with a verdict that `others` have not read.
// Polls a counter: no store can wait for a number.
void AwaitHeard(c10d::Store& store, const std::string& heard_key, int others) {
  const auto deadline = std::chrono::steady_clock::now() + kVerdictGrace;
  while (store.add(heard_key, 0) < others && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

std::string AwaitVerdict(c10d::Store& store, int rank, std::chrono::milliseconds timeout) {
  try {
    store.wait({kVerdictKey}, timeout + kVerdictGrace);
  } catch (const c10::DistNetworkError&) {
    throw PeerError("rank " + std::to_string(rank) +
                    " lost rank 0 while it waited for all to join; see what rank 0 says");
  } catch (const c10::DistStoreError&) {
    throw std::runtime_error(
        "rank " + std::to_string(rank) + " waited " +
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(timeout).count()) +
        " s for rank 0 to join; is it started?");
  }
  return store.get_to_str(kVerdictKey);
}

// The first letter of what rank 0 has decided.
constexpr char kDecided = '+';
constexpr char kRefused = '-';

}  // namespace

std::string DecideTogether(c10d::Store& store, int rank, int world_size, const std::string& name,
                           const std::string& own, const Decide& decide) {
  if (world_size == 1) return decide({own});
  const auto key_of = [&name](int of) { return "ddprun/" + name + "/" + std::to_string(of); };
  const std::string decision_key = "ddprun/" + name + "/decision";
  const std::string heard_key = "ddprun/" + name + "/heard";
  if (rank != 0) {
    store.set(key_of(rank), own);
    const std::string decision = store.get_to_str(decision_key);
    if (decision.front() == kDecided) return decision.substr(1);
    store.add(heard_key, 1);
    throw std::runtime_error(decision.substr(1));
  }
  std::vector<std::string> texts{own};
  ReadFromOthers(store, world_size, key_of, [&texts](int, const std::string& text) {
    texts.push_back(text);
    return true;
  });
  try {
    const std::string decision = decide(texts);
    store.set(decision_key, kDecided + decision);
    return decision;
  } catch (const std::exception& error) {
    store.set(decision_key, kRefused + std::string(error.what()));
    AwaitHeard(store, heard_key, world_size - 1);
    throw std::runtime_error(error.what());
  }
}

std::string Disagreement(const SharedFacts& rank_zero, int rank, const SharedFacts& facts) {
  constexpr int kNamedMax = 3;
  const auto value_of = [](const SharedFacts& of, const std::string& name) -> std::string {
    const auto found =
        std::find_if(of.begin(), of.end(), [&](const auto& fact) { return fact.first == name; });
    if (found == of.end()) return "unknown";
    return found->second.empty() ? "not set" : found->second;
  };
  SharedFacts all = rank_zero;  // and what this one does not know
  for (const auto& fact : facts) {
    const auto same = [&](const auto& known) { return known.first == fact.first; };
    if (std::none_of(rank_zero.begin(), rank_zero.end(), same)) all.push_back(fact);
  }
  std::string text;
  int differing = 0;
  for (const auto& [name, value] : all) {
    const std::string theirs = value_of(facts, name);
    const std::string ours = value_of(rank_zero, name);
    if (theirs == ours || ++differing > kNamedMax) continue;
    text += (differing == 1 ? "" : ", ") + name + " is " + theirs + " on rank " +
            std::to_string(rank) + ", but " + ours + " on rank 0";
  }
  if (differing > kNamedMax) text += ", and " + std::to_string(differing - kNamedMax) + " more";
  return text;
}

void CallRoll(c10d::Store& store, int rank, int world_size, std::chrono::milliseconds timeout,
              const SharedFacts& facts) {
  // Before the rank counts as present.
  if (rank != 0) store.set(FactsKey(rank), ToText(facts));
  Present(store, rank, world_size);
  std::string verdict;
  if (rank == 0) {
    verdict = Judge(store, world_size, timeout, facts);
    store.set(kVerdictKey, verdict);
    if (verdict.rfind(kAllHere, 0) != 0)
      AwaitHeard(store, kHeardKey, PresentOthers(store, world_size));
  } else {
    verdict = AwaitVerdict(store, rank, timeout);
    if (verdict.rfind(kAllHere, 0) != 0) store.add(kHeardKey, 1);
  }
  if (verdict == kAllHere + std::to_string(world_size)) return;
  // A rank beyond rank 0's world reads a verdict that concerns the other ranks only.
  if (verdict.rfind(kAllHere, 0) == 0) {
    verdict = kIncomplete + ("rank " + std::to_string(rank)) + " has WORLD_SIZE " +
              std::to_string(world_size) + ", rank 0 has " +
              verdict.substr(std::string(kAllHere).size()) + "; start all ranks with the same";
  }
  throw std::runtime_error(verdict);
}

}  // namespace ddprun
