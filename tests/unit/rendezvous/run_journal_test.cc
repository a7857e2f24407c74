// SPDX-License-Identifier: Apache-2.0
// Runs that are written down: nobody is told before, and what is read back is what was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "rendezvous/journal/journal_replay.h"
#include "rendezvous/journal/service_journal.h"
#include "rendezvous/service/run_registry.h"
#include "tests/unit/rendezvous/kv_store_fixture.h"
#include "tests/unit/rendezvous/membership_fixture.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using V = StoreVerb;

// What outlives a service. Its commits can be held, or fail.
struct MemoryDisk {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> parts;
  std::vector<std::string> records;
  std::uint64_t last = 0;
  std::size_t snapshot_after = 1'000'000;
  int snapshots = 0;
  bool hold = false;
  int held = 0;
  absl::Status failure;
};

class MemoryJournal final : public Journal {
 public:
  explicit MemoryJournal(MemoryDisk& disk) : disk_(disk) {}

  std::uint64_t Append(std::string record) override {
    std::lock_guard<std::mutex> lock(disk_.mutex);
    disk_.records.push_back(std::move(record));
    return ++disk_.last;
  }
  absl::Status Commit(std::uint64_t) override {
    std::unique_lock<std::mutex> lock(disk_.mutex);
    ++disk_.held;
    disk_.changed.notify_all();
    disk_.changed.wait(lock, [&] { return !disk_.hold; });
    --disk_.held;
    return disk_.failure;
  }
  bool WantsSnapshot() override {
    std::lock_guard<std::mutex> lock(disk_.mutex);
    return disk_.records.size() >= disk_.snapshot_after;
  }
  void Snapshot(std::vector<std::string> parts) override {
    std::lock_guard<std::mutex> lock(disk_.mutex);
    disk_.parts = std::move(parts);
    disk_.records.clear();
    ++disk_.snapshots;
    disk_.changed.notify_all();
  }
  JournalReport Report() override { return {}; }

 private:
  MemoryDisk& disk_;
};

std::unique_ptr<ServiceJournal> OpenDisk(MemoryDisk& disk,
                                         std::function<void(absl::Status)> on_failure = nullptr) {
  auto journal = ServiceJournal::Start(
      [&](const JournalReplay& replay) -> absl::StatusOr<std::unique_ptr<Journal>> {
        for (const std::string& part : disk.parts) {
          if (absl::Status status = replay.on_part(part); !status.ok()) return status;
        }
        for (const std::string& record : disk.records) {
          if (absl::Status status = replay.on_record(record); !status.ok()) return status;
        }
        return std::make_unique<MemoryJournal>(disk);
      },
      std::move(on_failure));
  EXPECT_TRUE(journal.ok()) << journal.status();
  return *std::move(journal);
}

class HeardDirectives final : public DirectiveSink {
 public:
  void Push(Directive directive) override {
    std::lock_guard<std::mutex> lock(mutex_);
    directives_.push_back(std::move(directive));
  }
  void End() override {}
  void Flush() override {}
  std::vector<Directive> directives() {
    std::lock_guard<std::mutex> lock(mutex_);
    return directives_;
  }

 private:
  std::mutex mutex_;
  std::vector<Directive> directives_;
};

class HeardReplies final : public ReplySink {
 public:
  void Push(StoreReply reply) override { replies.push_back(std::move(reply)); }
  void End(absl::Status) override {}
  void Flush() override {}
  std::vector<StoreReply> replies;
};

// ---- Before and after the commit

class RunJournalTest : public ::testing::Test {
 protected:
  // Until a commit has begun.
  void AwaitHeld() {
    std::unique_lock<std::mutex> lock(disk_.mutex);
    ASSERT_TRUE(
        disk_.changed.wait_for(lock, std::chrono::seconds(20), [&] { return disk_.held > 0; }));
  }
  void SetHold(bool hold) {
    std::lock_guard<std::mutex> lock(disk_.mutex);
    disk_.hold = hold;
    disk_.changed.notify_all();
  }
  RunRegistry::Place Enter(RunRegistry& registry, const Join& join) {
    auto place = registry.Admit(join, sink_);
    EXPECT_TRUE(place.ok());
    place->run->Joined(place->link, join, std::chrono::steady_clock::now());
    return *place;
  }

  MemoryDisk disk_;
  const std::shared_ptr<HeardDirectives> sink_ = std::make_shared<HeardDirectives>();
};

TEST_F(RunJournalTest, NobodyIsToldBeforeItIsWrittenDown) {
  RunRegistry registry(std::nullopt, OpenDisk(disk_));
  SetHold(true);
  std::thread joiner([&] { Enter(registry, MakeJoin("a", {.nodes = 1})); });
  AwaitHeld();
  EXPECT_THAT(sink_->directives(), IsEmpty());
  EXPECT_THAT(disk_.records, SizeIs(2)) << "the run and the join";
  SetHold(false);
  joiner.join();
  EXPECT_THAT(sink_->directives(), Not(IsEmpty()));
}

TEST_F(RunJournalTest, WhatAnotherShowsWaitsForItsRecordToo) {
  RunRegistry registry(std::nullopt, OpenDisk(disk_));
  const RunRegistry::Place place = Enter(registry, MakeJoin("a", {.nodes = 2}));
  Enter(registry, MakeJoin("b", {.nodes = 2}));
  auto writes = std::make_shared<HeardReplies>();
  auto reads = std::make_shared<HeardReplies>();
  const auto now = std::chrono::steady_clock::now();
  const StorePeer writer = *place.run->OpenStore(writes, {"run", "id-a", 1, {}});
  const StorePeer reader = *place.run->OpenStore(reads, {"run", "id-b", 1, {}});
  SetHold(true);
  const auto say = [&](StorePeer peer, StoreOp op) {
    StoreBatch batch;
    batch.requests.push_back({1, std::move(op)});
    place.run->Receive(peer, batch, now);
  };
  std::thread first([&] { say(writer, MakeOp(V::kSet, {"k"}, {"v"})); });
  AwaitHeld();
  std::thread second([&] { say(reader, MakeOp(V::kGet, {"k"})); });
  {
    std::unique_lock<std::mutex> lock(disk_.mutex);
    ASSERT_TRUE(disk_.changed.wait_for(lock, std::chrono::seconds(20), [&] {
      return disk_.held == 2;
    })) << "the read did not wait for the write's record";
  }
  SetHold(false);
  first.join();
  second.join();
  ASSERT_THAT(reads->replies, SizeIs(1));
  EXPECT_EQ(reads->replies[0].result.values[0], "v");
}

TEST_F(RunJournalTest, WhenNothingCanBeWrittenNobodyIsTold) {
  std::vector<absl::Status> failures;
  RunRegistry registry(std::nullopt, OpenDisk(disk_, [&](absl::Status status) {
                         failures.push_back(std::move(status));
                       }));
  disk_.failure = absl::ResourceExhaustedError("the disk is full");
  Enter(registry, MakeJoin("a", {.nodes = 1}));
  Enter(registry, MakeJoin("b", {.nodes = 1}));
  EXPECT_THAT(sink_->directives(), IsEmpty());
  EXPECT_THAT(failures, SizeIs(1));
}

// The service's end waits for its streams, which must not be held by what is never said on them.
TEST_F(RunJournalTest, WhatIsNeverSaidHoldsNoStream) {
  RunRegistry registry(std::nullopt, OpenDisk(disk_, [](const absl::Status&) {}));
  const RunRegistry::Place place = Enter(registry, MakeJoin("a", {.nodes = 1}));
  disk_.failure = absl::ResourceExhaustedError("the disk is full");
  auto replies = std::make_shared<HeardReplies>();
  const auto now = std::chrono::steady_clock::now();
  const StorePeer peer = *place.run->OpenStore(replies, {"run", "id-a", 1, {}});
  StoreBatch batch;
  batch.requests.push_back({1, MakeOp(V::kSet, {"k"}, {"v"})});
  place.run->Receive(peer, batch, now);
  place.run->StoreGone(peer);
  EXPECT_THAT(replies->replies, IsEmpty());
  EXPECT_EQ(replies.use_count(), 1);
}

TEST_F(RunJournalTest, ARunThatIsOverLeavesNothing) {
  {
    RunRegistry registry(std::nullopt, OpenDisk(disk_));
    const RunRegistry::Place place = Enter(registry, MakeJoin("a", {.nodes = 1}));
    const auto now = std::chrono::steady_clock::now();
    place.run->Reported(place.link, NodeSucceeded{RoundId{1}}, now);
    place.run->Gone(place.link, now);
    registry.Closed(place);
    EXPECT_EQ(registry.Find("run"), nullptr);
  }
  RunRegistry after(std::nullopt, OpenDisk(disk_));
  EXPECT_EQ(after.Find("run"), nullptr);
}

TEST_F(RunJournalTest, ARecordThatCannotBeReadIsSaid) {
  disk_.records.push_back("\xff\xff");
  const auto journal = ServiceJournal::Start(
      [&](const JournalReplay& replay) -> absl::StatusOr<std::unique_ptr<Journal>> {
        return replay.on_record(disk_.records[0]);
      },
      nullptr);
  EXPECT_EQ(journal.status().code(), absl::StatusCode::kDataLoss);
}

// ---- What is read back

// All of a run, in a form that can be compared.
struct Picture {
  std::string membership;
  std::map<std::string, std::string> values;
  std::map<std::string, std::vector<std::string>> queues;
  std::map<std::pair<std::string, std::uint64_t>, StoreResult> answers;
};

Picture Take(JournalReplayer& replayer) {
  Picture picture;
  auto runs = replayer.TakeRuns();
  EXPECT_LE(runs.size(), 1u);
  for (auto& [number, run] : runs) {
    picture.membership = EncodeJournalRecord({number, TimePoint{}, RunSnapshot{0, run.membership}});
    for (const auto& entry : run.store.store().values()) picture.values.insert(entry);
    for (const auto& [key, queue] : run.store.store().queues()) {
      picture.queues[key].assign(queue.begin(), queue.end());
    }
    run.store.ForEachAnswer(
        [&](const std::string& node, std::uint64_t id, const StoreResult& result) {
          picture.answers[{node, id}] = result;
        });
  }
  return picture;
}

// Two nodes that come, go, report and use the store, in any order.
class RandomService {
 public:
  RandomService(MemoryDisk& disk, unsigned seed)
      : disk_(disk), random_(seed), registry_(std::nullopt, OpenDisk(disk)) {}

  void Step() {
    Node& node = nodes_[Below(2)];
    const RoundId round{1 + Below(3)};
    switch (Below(12)) {
      case 0:
      case 1:
        Enter(node);
        return;
      case 2:
        if (!node.place) return;
        node.place->run->Gone(node.place->link, now_);
        registry_.Closed(*node.place);
        node.place.reset();
        return;
      case 3:
        Report(node, WorkerFailed{round, ExitedWith(3)});
        return;
      case 4:
        Report(node, NodeStopped{round, 4000});
        return;
      case 5:
        Report(node, Heartbeat{});
        return;
      default:
        UseStore(node);
    }
  }

  // What the journal has, against what the service has.
  void Compare() {
    JournalReplayer written;
    {
      std::lock_guard<std::mutex> lock(disk_.mutex);
      for (const std::string& part : disk_.parts) ASSERT_TRUE(written.Apply(part).ok());
      for (const std::string& record : disk_.records) ASSERT_TRUE(written.Apply(record).ok());
    }
    JournalReplayer live;
    if (const auto run = registry_.Find("run")) {
      std::vector<std::string> parts;
      {
        absl::MutexLock lock(&run->snapshot_mutex());
        run->AddParts(parts);
      }
      for (const std::string& part : parts) ASSERT_TRUE(live.Apply(part).ok());
    }
    const Picture expected = Take(live);
    most_answers = std::max(most_answers, expected.answers.size());
    most_values = std::max(most_values, expected.values.size());
    const Picture found = Take(written);
    ASSERT_EQ(found.membership, expected.membership);
    ASSERT_EQ(found.values, expected.values);
    ASSERT_EQ(found.queues, expected.queues);
    // When a node has its answers is not written down, so there may be more.
    for (const auto& [id, answer] : expected.answers) {
      ASSERT_TRUE(found.answers.contains(id)) << id.first << " " << id.second;
      ASSERT_EQ(found.answers.at(id), answer);
    }
  }

  std::size_t most_answers = 0;
  std::size_t most_values = 0;

 private:
  struct Node {
    std::string name;
    std::optional<RunRegistry::Place> place;
    std::optional<StorePeer> peer;
    std::shared_ptr<Run> store_of;
    std::uint64_t stream = 0;
    std::uint64_t last_id = 0;
  };

  std::uint64_t Below(std::uint64_t limit) {
    return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random_);
  }

  void Enter(Node& node) {
    if (node.place) return;
    Join join = MakeJoin(node.name, {.nodes = 2, .restarts = 3, .lease = std::chrono::minutes(10)});
    join.resume = Below(2) == 0;
    auto place = registry_.Admit(join, std::make_shared<HeardDirectives>());
    ASSERT_TRUE(place.ok());
    node.place = *place;
    node.place->run->Joined(node.place->link, join, now_);
  }
  void Report(Node& node, const ddprun::Report& report) {
    if (node.place) node.place->run->Reported(node.place->link, report, now_);
  }
  void UseStore(Node& node) {
    if (!node.place) return;
    Run& run = *node.place->run;
    if (!node.peer || node.store_of != node.place->run || Below(10) == 0) {
      if (node.peer) node.store_of->StoreGone(*node.peer);
      std::vector<std::uint64_t> unanswered;
      for (std::uint64_t id = node.last_id; id > 0 && id + 5 > node.last_id; --id) {
        unanswered.push_back(id);
      }
      const auto peer = run.OpenStore(std::make_shared<HeardReplies>(),
                                      {"run", "id-" + node.name, ++node.stream, unanswered});
      node.peer = peer.ok() ? std::optional(*peer) : std::nullopt;
      node.store_of = node.place->run;
      if (!node.peer) return;
    }
    const std::string key = std::to_string(Below(4));
    StoreOp add = MakeOp(V::kAdd, {"n" + key});
    add.number = 3;
    StoreOp pop = MakeOp(V::kQueuePop, {"q"});
    pop.timeout = std::chrono::seconds(60);
    const std::vector<StoreOp> ops = {MakeOp(V::kSet, {key}, {std::to_string(Below(100))}),
                                      add,
                                      MakeOp(V::kDelete, {key}),
                                      MakeOp(V::kAppend, {"a" + key}, {"x"}),
                                      MakeOp(V::kQueuePush, {"q"}, {key}),
                                      pop,
                                      MakeOp(V::kCompareSet, {key}, {"7", "8"}),
                                      MakeOp(V::kGet, {key})};
    StoreBatch batch;
    StoreOp op = ops[Below(ops.size())];
    op.round = RoundId{1 + Below(2)};
    batch.requests.push_back({++node.last_id, std::move(op)});
    if (Below(3) == 0) batch.answered.push_back(node.last_id - 1);
    run.Receive(*node.peer, batch, now_);
  }

  MemoryDisk& disk_;
  std::mt19937 random_;
  RunRegistry registry_;
  TimePoint now_ = std::chrono::steady_clock::now();
  Node nodes_[2] = {{.name = "a"}, {.name = "b"}};
};

TEST(RunJournalRandomTest, WhatIsReadBackIsWhatWas) {
  std::size_t most_answers = 0;
  std::size_t most_values = 0;
  for (unsigned seed = 0; seed < 60 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    MemoryDisk disk;
    for (int life = 0; life < 3 && !::testing::Test::HasFailure(); ++life) {
      RandomService service(disk, seed * 10 + life);
      for (int i = 0; i < 120 && !::testing::Test::HasFailure(); ++i) service.Step();
      service.Compare();
      most_answers = std::max(most_answers, service.most_answers);
      most_values = std::max(most_values, service.most_values);
    }
  }
  EXPECT_GT(most_answers, 3u);
  EXPECT_GT(most_values, 3u);
}

TEST(RunJournalRandomTest, ASnapshotTakesThePlaceOfTheRecords) {
  MemoryDisk disk;
  disk.snapshot_after = 50;
  RandomService service(disk, 1);
  for (int i = 0; i < 400; ++i) service.Step();
  {
    std::unique_lock<std::mutex> lock(disk.mutex);
    ASSERT_TRUE(
        disk.changed.wait_for(lock, std::chrono::seconds(20), [&] { return disk.snapshots > 0; }));
  }
  service.Compare();
}

}  // namespace
}  // namespace ddprun
