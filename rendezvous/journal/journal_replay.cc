// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/journal_replay.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"

namespace ddprun {
namespace {

// A node that was accepted stays so, although it speaks the protocol of the service that accepted
// it: when it comes back it is told that this service speaks another one.
void AcceptAsThen(ReplayedRun& run, Join& join) {
  if (run.protocol_version == 0) run.protocol_version = join.protocol_version;
  if (join.protocol_version == run.protocol_version) {
    join.protocol_version = kProtocolVersion;
  } else if (join.protocol_version == kProtocolVersion) {
    join.protocol_version = run.protocol_version;
  }
}

}  // namespace

void JournalReplayer::Step(MembershipEvent& event, TimePoint now, ReplayedRun& run) const {
  if (auto* joined = std::get_if<NodeJoined>(&event)) {
    run.last_link = std::max(run.last_link, static_cast<std::uint64_t>(joined->link));
    AcceptAsThen(run, joined->join);
  }
  // The messages were sent before, or nodes ask again.
  const std::vector<MembershipEffect> effects = ddprun::Step(run.membership, event, now);
  for (const MembershipEffect& effect : effects) {
    if (const auto* changed = std::get_if<RoundChanged>(&effect)) run.store.Clear(changed->round);
  }
  if (on_step_ != nullptr) on_step_(run.membership, event, now, effects);
}

absl::Status JournalReplayer::Apply(absl::string_view bytes) {
  auto record = DecodeJournalRecord(bytes);
  return record.ok() ? Apply(*std::move(record)) : record.status();
}

absl::Status JournalReplayer::Apply(JournalRecord record) {
  last_ = std::max(last_, record.now);
  last_run_ = std::max(last_run_, record.run);
  if (auto* opened = std::get_if<RunOpened>(&record.what)) {
    const auto it =
        runs_.emplace(record.run, ReplayedRun(MakeRun(std::move(opened->run_id), true))).first;
    it->second.protocol_version = opened->protocol_version;
    return absl::OkStatus();
  }
  if (auto* snapshot = std::get_if<RunSnapshot>(&record.what)) {
    ReplayedRun run(std::move(snapshot->state));
    run.last_link = snapshot->last_link;
    if (const auto known = runs_.find(record.run); known != runs_.end()) {
      run.protocol_version = known->second.protocol_version;
      runs_.erase(known);
    }
    runs_.emplace(record.run, std::move(run));
    return absl::OkStatus();
  }
  // Records after the end of a run have no effect.
  const auto it = runs_.find(record.run);
  if (it == runs_.end()) return absl::OkStatus();
  ReplayedRun& run = it->second;
  std::visit(Overloaded{[&](const RunForgotten&) { runs_.erase(it); },
                        [&](MembershipEvent& event) { Step(event, record.now, run); },
                        [&](StoreMutation& mutation) {
                          run.store.Replay(mutation.node_id, mutation.id, std::move(mutation.op));
                        },
                        [&](StoreAnswer& answer) {
                          run.store.ReplayAnswer(answer.node_id, answer.id,
                                                 std::move(answer.result));
                        },
                        [](const RunOpened&) {}, [](const RunSnapshot&) {}},
             record.what);
  return absl::OkStatus();
}

void AddSnapshotParts(std::uint64_t number, TimePoint now, std::uint64_t last_link,
                      const RunState& membership, StoreHub& store,
                      std::vector<std::string>& parts) {
  const auto add = [&](decltype(JournalRecord::what) what) {
    parts.push_back(EncodeJournalRecord({number, now, std::move(what)}));
  };
  add(RunSnapshot{last_link, membership});
  ForEachRebuildingOp(store.store(), kJournalPartBytes, [&](StoreOp op) {
    add(StoreMutation{"", 0, std::move(op)});
  });
  store.ForEachAnswer([&](const std::string& node_id, std::uint64_t id, const StoreResult& result) {
    add(StoreAnswer{node_id, id, result});
  });
}

}  // namespace ddprun
