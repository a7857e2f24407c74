// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/simulated_agent.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/version.h"
#include "rendezvous/proxy/store_upstream.h"
#include "rendezvous/wire/grpc_channel.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kIdKey[] = "ncclUniqueId";
constexpr char kArrivedKey[] = "store_based_barrier_key:0";
constexpr char kOpenKey[] = "store_based_barrier_key:0:last_worker";
// As large as NCCL's.
constexpr std::size_t kIdBytes = 128;
constexpr milliseconds kStoreTimeout{120'000};

}  // namespace

// ---- AgentsProgress

void AgentsProgress::Reached(Milestone milestone, TimePoint now) {
  const auto at = static_cast<std::size_t>(milestone);
  absl::MutexLock lock(&mutex_);
  ++counts_[at];
  last_[at] = std::max(last_[at], now);
}

void AgentsProgress::Failed(std::string why) {
  absl::MutexLock lock(&mutex_);
  if (failure_.empty()) failure_ = std::move(why);
}

bool AgentsProgress::WaitFor(Milestone milestone, int nodes, milliseconds timeout) {
  const auto at = static_cast<std::size_t>(milestone);
  const auto over = [this, at, nodes]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return counts_[at] >= nodes || !failure_.empty();
  };
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&over), absl::FromChrono(timeout));
  return counts_[at] >= nodes && failure_.empty();
}

std::string AgentsProgress::failure() {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

int AgentsProgress::count(Milestone milestone) {
  absl::MutexLock lock(&mutex_);
  return counts_[static_cast<std::size_t>(milestone)];
}

TimePoint AgentsProgress::last(Milestone milestone) {
  absl::MutexLock lock(&mutex_);
  return last_[static_cast<std::size_t>(milestone)];
}

// ---- The session

SimulatedAgent::SimulatedAgent(Options options, AgentsProgress& progress)
    : options_(std::move(options)), progress_(progress) {}

std::string SimulatedAgent::NameOf(int index) { return absl::StrCat("simulated-", index); }

void SimulatedAgent::Begin() {
  Join join;
  join.protocol_version = kProtocolVersion;
  join.software_version = kSoftwareVersion;
  join.run_id = options_.run_id;
  join.node_id = NodeId{NameOf(options_.index)};
  join.host = join.node_id.value;
  join.local_world_size = options_.workers;
  join.nodes_min = join.nodes_max = options_.nodes;
  join.address = "127.0.0.1";
  join.worker_port = 1;
  join.join_timeout = options_.patience;
  join.lease = std::chrono::seconds(10);
  {
    absl::MutexLock lock(&mutex_);
    ++sent_.messages;
  }
  session_ = SessionClient::Open(options_.channel, std::move(join), options_.patience,
                                 [this](SessionEvent event) { OnSession(std::move(event)); });
}

void SimulatedAgent::BeatIfDue(TimePoint now) {
  {
    absl::MutexLock lock(&mutex_);
    if (!heartbeat_due_ || now < *heartbeat_due_) return;
    heartbeat_due_ = now + heartbeat_;
    ++sent_.messages;
    ++sent_.heartbeats;
  }
  session_->Send(Heartbeat{});
}

void SimulatedAgent::Succeed() {
  RoundId round;
  {
    absl::MutexLock lock(&mutex_);
    round = start_->round;
    heartbeat_due_.reset();
  }
  session_->Send(NodeSucceeded{round});
}

void SimulatedAgent::End() {
  session_.reset();
  std::shared_ptr<StoreLink> store;
  {
    absl::MutexLock lock(&mutex_);
    store = store_;
  }
  if (store != nullptr) store->Cancel();
}

SimulatedAgent::Sent SimulatedAgent::sent() {
  absl::MutexLock lock(&mutex_);
  return sent_;
}

std::optional<Start> SimulatedAgent::start() {
  absl::MutexLock lock(&mutex_);
  return start_;
}

void SimulatedAgent::OnSession(SessionEvent event) {
  const TimePoint now = Clock::now();
  if (const auto* ended = std::get_if<SessionEnded>(&event)) {
    absl::MutexLock lock(&mutex_);
    if (!finished_) {
      progress_.Failed(absl::StrCat(NameOf(options_.index), ": ", ended->status.ToString()));
    }
    return progress_.Reached(Milestone::kEnded, now);
  }
  const auto* directive = std::get_if<Directive>(&event);
  if (directive == nullptr) return;
  if (const auto* accepted = std::get_if<Accepted>(directive)) {
    {
      absl::MutexLock lock(&mutex_);
      heartbeat_ = accepted->heartbeat;
      heartbeat_due_ = now + heartbeat_;
    }
    progress_.Reached(Milestone::kAccepted, now);
  } else if (const auto* start = std::get_if<Start>(directive)) {
    progress_.Reached(Milestone::kStarted, now);
    OnStart(*start);
  } else if (const auto* finish = std::get_if<Finish>(directive)) {
    absl::MutexLock lock(&mutex_);
    finished_ = finish->verdict.success;
  } else if (const auto* refused = std::get_if<Refused>(directive)) {
    progress_.Failed(absl::StrCat(NameOf(options_.index), ": ", refused->status.ToString()));
  }
}

// ---- The workers

// Their first operations go up with the stream's greeting.
void SimulatedAgent::OnStart(const Start& start) {
  StoreHello hello;
  hello.run_id = options_.run_id;
  hello.node_id = NameOf(options_.index);
  hello.stream = 1;
  StoreLink::Handlers handlers{
      [this](StoreBatch* batch) { return TakeBatch(batch); },
      [this](std::vector<StoreReply> replies) {
        OnReplies(std::move(replies));
        return true;
      },
      [this](const absl::Status& status) {
        absl::MutexLock lock(&mutex_);
        if (done_ < options_.workers) {
          progress_.Failed(
              absl::StrCat("the store of ", NameOf(options_.index), ": ", status.ToString()));
        }
      }};
  const std::shared_ptr<StoreLink> store =
      std::make_shared<StoreUpstream>(options_.channel->channel(), options_.channel->target(),
                                      std::move(hello), std::move(handlers));
  {
    absl::MutexLock lock(&mutex_);
    if (start_) return;  // said again after a stream broke
    start_ = start;
    store_ = store;
    folder_.SetRound(start.round);
    steps_.resize(static_cast<std::size_t>(options_.workers));
    for (std::size_t worker = 0; worker < steps_.size(); ++worker) {
      const bool sets = worker == 0 && start.rank_first == 0;
      steps_[worker] = sets ? Step::kSetId : Step::kGetId;
      StoreOp op = Op(sets ? StoreVerb::kSet : StoreVerb::kGet, kIdKey);
      if (sets) op.values.emplace_back(kIdBytes, 'i');
      SubmitLocked(worker, std::move(op));
    }
  }
  store->Begin();
}

bool SimulatedAgent::TakeBatch(StoreBatch* batch) {
  absl::MutexLock lock(&mutex_);
  if (!folder_.HasBatch()) return false;
  *batch = folder_.TakeBatch(Clock::now());
  ++sent_.messages;
  return true;
}

void SimulatedAgent::OnReplies(std::vector<StoreReply> replies) {
  StoreCoalescer::Answers answers;
  std::shared_ptr<StoreLink> store;
  {
    absl::MutexLock lock(&mutex_);
    answers = folder_.Receive(std::move(replies));
    store = store_;
  }
  store->Flush();
  Advance(std::move(answers));
}

// Workers are processes: each asks by itself, and what the first one asks is under way when the
// second one's question comes.
void SimulatedAgent::Advance(StoreCoalescer::Answers answers) {
  std::shared_ptr<StoreLink> store;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const StoreCoalescer::Answer answer = std::move(answers[i]);
    for (const auto& to : answer.to) {
      {
        absl::MutexLock lock(&mutex_);
        store = store_;
        const auto worker = static_cast<std::size_t>(to.first);
        std::optional<StoreOp> op = Next(worker, answer.result);
        if (!op) continue;
        for (StoreCoalescer::Answer& more : SubmitLocked(worker, *std::move(op))) {
          answers.push_back(std::move(more));
        }
      }
      store->Flush();
    }
  }
}

std::optional<StoreOp> SimulatedAgent::Next(std::size_t worker, const StoreResult& result) {
  if (!result.status.ok()) {
    progress_.Failed(absl::StrCat("worker ", worker, " of ", NameOf(options_.index), ": ",
                                  result.status.ToString()));
    return std::nullopt;
  }
  Step& step = steps_[worker];
  switch (step) {
    case Step::kSetId:
    case Step::kGetId: {
      if (step == Step::kGetId && result.values.at(0) != std::string(kIdBytes, 'i')) {
        progress_.Failed("a wrong id");
      }
      if (++have_id_ == options_.workers) progress_.Reached(Milestone::kHaveId, Clock::now());
      step = Step::kArrive;
      StoreOp op = Op(StoreVerb::kAdd, kArrivedKey);
      op.number = 1;
      return op;
    }
    case Step::kArrive: {
      const bool last = result.number == start_->world_size;
      step = last ? Step::kOpen : Step::kWait;
      StoreOp op = Op(last ? StoreVerb::kSet : StoreVerb::kWait, kOpenKey);
      if (last) op.values.emplace_back("1");
      return op;
    }
    case Step::kOpen:
      step = Step::kWait;
      return Op(StoreVerb::kWait, kOpenKey);
    case Step::kWait:
      step = Step::kDone;
      if (++done_ == options_.workers) progress_.Reached(Milestone::kPassedBarrier, Clock::now());
      return std::nullopt;
    case Step::kDone:
      progress_.Failed("a worker was answered twice");
      return std::nullopt;
  }
  return std::nullopt;
}

StoreOp SimulatedAgent::Op(StoreVerb verb, const char* key) const {
  StoreOp op;
  op.verb = verb;
  op.round = start_->round;
  op.keys.emplace_back(key);
  if (MayWait(verb)) op.timeout = kStoreTimeout;
  return op;
}

StoreCoalescer::Answers SimulatedAgent::SubmitLocked(std::size_t worker, StoreOp op) {
  return folder_.Submit(StoreWorker{worker}, ++last_id_, std::move(op), Clock::now());
}

}  // namespace ddprun
