// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_hub.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// A node's streams of different spaces are as those of different nodes.
std::string NameOf(const StoreHello& hello) {
  return hello.space.empty() ? hello.node_id : absl::StrCat(hello.node_id, "/", hello.space);
}

}  // namespace

StoreEffects StoreHub::Open(StorePeer peer, const StoreHello& hello) {
  effects_.clear();
  const std::string name = NameOf(hello);
  if (!nodes_.contains(name) && nodes_.size() >= static_cast<std::size_t>(kNodesMax)) {
    effects_.push_back(StoreEnd{
        peer, absl::ResourceExhaustedError(absl::StrCat("the run's store serves ", nodes_.size(),
                                                        " nodes, which is its limit"))});
    return std::move(effects_);
  }
  Node& node = nodes_[name];
  if (hello.stream <= node.stream) {
    effects_.push_back(StoreEnd{
        peer, absl::AbortedError(absl::StrCat("stream ", hello.stream, " of node '", hello.node_id,
                                              "' comes after its stream ", node.stream))});
    return std::move(effects_);
  }
  if (node.peer != kNoPeer) {
    const StorePeer old = node.peer;
    Gone(old);
    effects_.push_back(StoreEnd{
        old, absl::AbortedError("the node has opened another stream in place of this one")});
  }
  node.peer = peer;
  node.stream = hello.stream;
  node.replies.KeepOnly(hello.unanswered);
  Stream& stream = streams_[peer];
  stream.node_id = name;
  if (!hello.space.empty()) stream.prefix = absl::StrCat("role/", hello.space, "/");
  return std::move(effects_);
}

StoreEffects StoreHub::Receive(StorePeer peer, StoreBatch& batch, TimePoint now) {
  effects_.clear();
  reply_bytes_ = 0;
  const auto stream = streams_.find(peer);
  if (stream == streams_.end()) {
    batch = {};
    return {};
  }
  Node& node = nodes_.at(stream->second.node_id);
  for (const std::uint64_t id : std::exchange(batch.answered, {})) node.replies.Forget(id);
  while (!batch.requests.empty() && reply_bytes_ < kStoreBatchBytes) {
    StoreRequest request = std::move(batch.requests.front());
    batch.requests.pop_front();
    if (request.op) {
      ++operations_;
      Submit(peer, request.id, *std::move(request.op), now);
    } else {
      Cancel(peer, request.id);
    }
  }
  if (batch.requests.empty()) ++node.messages;
  return std::move(effects_);
}

void StoreHub::Submit(StorePeer peer, std::uint64_t id, StoreOp op, TimePoint now) {
  Stream& stream = streams_.at(peer);
  if (!stream.prefix.empty()) {
    for (std::string& key : op.keys) key.insert(0, stream.prefix);
  }
  if (id == 0 || stream.waiting.contains(id)) {
    Reply(peer, id,
          ErrorResult(absl::InvalidArgumentError(
              absl::StrCat("store request id ", id, " is 0 or not answered yet"))));
    return;
  }
  if (stream.waiting.size() >= kStreamOpsMax) {
    Reply(peer, id,
          ErrorResult(absl::ResourceExhaustedError(
              absl::StrCat("this stream has ", stream.waiting.size(),
                           " unanswered store operations, its limit"))));
    return;
  }
  if (Changes(op.verb) && AnsweredBefore(peer, nodes_.at(stream.node_id), id)) return;
  if (absl::Status status = store_.Check(op); !status.ok()) {
    Reply(peer, id, ErrorResult(std::move(status)));
    return;
  }
  if (!stream.prefix.empty() &&
      (op.verb == StoreVerb::kNumKeys || op.verb == StoreVerb::kListKeys)) {
    Reply(peer, id, store_.KeysWith(stream.prefix, op.verb));
    return;
  }
  // A QUEUE_POP is reported when it is served: only then does it change something.
  if (Changes(op.verb) && op.verb != StoreVerb::kQueuePop) {
    Notify(stream.node_id, id, op);
  }
  const StoreTicket ticket{++last_ticket_};
  tickets_.emplace(ticket, Origin{peer, id});
  stream.waiting.emplace(id, ticket);
  TakeAnswers(store_.Submit(ticket, std::move(op), now));
}

// True if the operation must not be performed: it was before, or its reply could not be cached.
bool StoreHub::AnsweredBefore(StorePeer peer, Node& node, std::uint64_t id) {
  if (const StoreResult* remembered = node.replies.Find(id)) {
    Reply(peer, id, *remembered);
    return true;
  }
  if (!node.replies.IsFull()) return false;
  Reply(peer, id,
        ErrorResult(absl::ResourceExhaustedError(absl::StrCat(
            "the node has not said that it has the answers to its last ", node.replies.size(),
            " store operations, which is more than the service remembers"))));
  return true;
}

void StoreHub::Cancel(StorePeer peer, std::uint64_t id) {
  Stream& stream = streams_.at(peer);
  nodes_.at(stream.node_id).replies.Forget(id);
  const auto it = stream.waiting.find(id);
  if (it == stream.waiting.end()) return;
  store_.Cancel(it->second);
  tickets_.erase(it->second);
  stream.waiting.erase(it);
}

void StoreHub::Gone(StorePeer peer) {
  const auto it = streams_.find(peer);
  if (it == streams_.end()) return;
  for (const auto& [id, ticket] : it->second.waiting) {
    store_.Cancel(ticket);
    tickets_.erase(ticket);
  }
  nodes_.at(it->second.node_id).peer = kNoPeer;
  streams_.erase(it);
}

StoreEffects StoreHub::Tick(TimePoint now) {
  effects_.clear();
  TakeAnswers(store_.Tick(now));
  return std::move(effects_);
}

StoreEffects StoreHub::Clear(RoundId round) {
  effects_.clear();
  TakeAnswers(store_.Clear(round));
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    it->second.replies.Clear();
    it->second.messages = 0;
    if (it->second.peer == kNoPeer) {
      nodes_.erase(it++);
    } else {
      ++it;
    }
  }
  return std::move(effects_);
}

void StoreHub::Replay(const std::string& node_id, std::uint64_t id, StoreOp op) {
  op.timeout = {};
  std::vector<KvStore::Answer> answers =
      store_.Submit(StoreTicket{++last_ticket_}, std::move(op), TimePoint{});
  if (!node_id.empty() && !answers.empty()) {
    ReplayAnswer(node_id, id, std::move(answers.front().result));
  }
}

void StoreHub::ReplayAnswer(const std::string& node_id, std::uint64_t id, StoreResult result) {
  ReplyCache& replies = nodes_[node_id].replies;
  // The journal does not record which replies the node has; it cannot miss more than this.
  while (replies.IsFull()) replies.ForgetLowest();
  replies.Remember(id, std::move(result));
}

void StoreHub::ForEachAnswer(const std::function<void(const std::string& node_id, std::uint64_t id,
                                                      const StoreResult&)>& on_answer) const {
  for (const auto& entry : nodes_) {
    entry.second.replies.ForEach(
        [&](std::uint64_t id, const StoreResult& answer) { on_answer(entry.first, id, answer); });
  }
}

std::uint64_t StoreHub::messages(const std::string& node_id) const {
  const auto it = nodes_.find(node_id);
  return it == nodes_.end() ? 0 : it->second.messages;
}

// ---- Answers

void StoreHub::TakeAnswers(std::vector<KvStore::Answer> answers) {
  for (KvStore::Answer& answer : answers) TakeAnswer(std::move(answer));
}

void StoreHub::TakeAnswer(KvStore::Answer answer) {
  const auto ticket = tickets_.find(answer.ticket);
  if (ticket == tickets_.end()) return;
  const Origin origin = ticket->second;
  tickets_.erase(ticket);
  Stream& stream = streams_.at(origin.peer);
  stream.waiting.erase(origin.id);
  if (answer.op.verb == StoreVerb::kQueuePop && answer.result.status.ok()) {
    Notify(stream.node_id, origin.id, answer.op);
  }
  if (Changes(answer.op.verb)) {
    nodes_.at(stream.node_id).replies.Remember(origin.id, answer.result);
  }
  Reply(origin.peer, origin.id, std::move(answer.result));
}

void StoreHub::Reply(StorePeer peer, std::uint64_t id, StoreResult result) {
  StoreReply reply;
  reply.id = id;
  reply.result = std::move(result);
  const auto stream = streams_.find(peer);
  if (stream != streams_.end() && !stream->second.prefix.empty()) {
    const std::string& prefix = stream->second.prefix;
    for (std::string& key : reply.result.keys) key.erase(0, prefix.size());
  }
  reply_bytes_ += BytesOf(reply.result);
  effects_.push_back(StoreSay{peer, std::move(reply)});
}

}  // namespace ddprun
