// SPDX-License-Identifier: Apache-2.0
// A record of the service's journal: the file may be damaged.
#include "rendezvous/journal/journal_records.h"
#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {

std::vector<std::string> Seeds() {
  StoreOp op;
  op.verb = StoreVerb::kSet;
  op.keys = {"key"};
  op.values = {"value"};
  StoreResult result;
  result.values = {"value"};
  RunSnapshot snapshot;
  snapshot.state.run_id = "run";
  std::vector<std::string> seeds;
  for (const auto& what : std::vector<decltype(JournalRecord::what)>{
           RunOpened{"run"}, RunForgotten{}, StoreMutation{"node", 7, op},
           StoreAnswer{"node", 7, result}, snapshot}) {
    JournalRecord record;
    record.run = 3;
    record.now = TimePoint(Duration(5));
    record.what = what;
    seeds.push_back(EncodeJournalRecord(std::move(record)));
  }
  return seeds;
}

bool Try(std::string_view bytes) {
  auto record = DecodeJournalRecord({bytes.data(), bytes.size()});
  if (!record.ok()) return false;
  const std::string written = EncodeJournalRecord(*std::move(record));
  auto again = DecodeJournalRecord(written);
  Require(again.ok(), "what is written can be read");
  Require(EncodeJournalRecord(*std::move(again)) == written, "a record is read as it was written");
  return true;
}

}  // namespace ddprun::fuzz
