// SPDX-License-Identifier: Apache-2.0
// Processes that talk over streams, as ours do over gRPC, on simulated time and with everything
// that goes wrong between machines. A stream delivers in order or ends; each side hears of its end
// in its own time, and not at all while it cannot know.
//
//   process crashes    its machine says so: the other side hears after a delay
//   machine crashes    nobody says so: the other side hears when it has been silent for too long
//   process is stopped as SIGSTOP: what comes to it waits, and the others find it silent
//   path is cut        one way or both: what is sent waits; heals, or is found silent by both
//   sides, each
//                      at its own moment, so that one may believe for a while in what the other
//                      gave up
//   stream breaks      both hear, each at its own moment; what was on the way is lost
//
// and, beyond what TCP allows, for protocols that say they stand it: messages that are lost alone,
// or that come twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/simulation/sim_clock.h"
#include "tests/simulation/sim_random.h"

namespace ddprun {

// A place where a process runs, over its restarts.
enum class SimProcess : std::uint32_t {};
// One stream. No number is used twice.
enum class SimStream : std::uint64_t {};

struct SimNetworkOptions {
  Duration delay_min = std::chrono::microseconds(50);
  Duration delay_max = std::chrono::milliseconds(2);
  // A packet that has to be sent again: what comes after it on the stream waits too.
  double resend = 0;
  Duration resend_delay = std::chrono::milliseconds(200);
  // Per message.
  double break_stream = 0;
  double drop = 0;
  double duplicate = 0;
  // How long a side takes to find that the other is silent, and a dialler that nobody answers.
  Duration silence_min = std::chrono::seconds(10);
  Duration silence_max = std::chrono::seconds(15);
  Duration connect_timeout = std::chrono::seconds(5);
};

// A running process, as the network sees it. Nothing is called within a call of the network.
template <typename Message>
class SimEndpoint {
 public:
  virtual ~SimEndpoint() = default;
  // Somebody has dialled.
  virtual void OnAccepted(SimStream stream, SimProcess from) = 0;
  // What this process has dialled is there. Messages can be sent before.
  virtual void OnConnected(SimStream) {}
  virtual void OnMessage(SimStream stream, Message message) = 0;
  // Not after one's own Close(). Nothing more is heard of the stream.
  virtual void OnClosed(SimStream stream) = 0;
};

template <typename Message>
class SimNetwork {
 public:
  SimNetwork(SimClock& clock, SimRandom random, SimNetworkOptions options)
      : clock_(clock), random_(random), options_(options) {}

  // ---- Processes

  // Does not run yet.
  SimProcess Add(std::string name) {
    processes_.push_back({std::move(name), clock_.NewGroup()});
    return SimProcess{static_cast<std::uint32_t>(processes_.size() - 1)};
  }
  void Start(SimProcess process, SimEndpoint<Message>* endpoint) {
    Process& of = Of(process);
    of.endpoint = endpoint;
    of.machine_up = true;
    Reconsider(process);
  }
  // Its endpoint is not called again, and its timers (Timers()) are gone.
  void CrashProcess(SimProcess process) { Crash(process, true); }
  void CrashMachine(SimProcess process) { Crash(process, false); }
  void Stop(SimProcess process) {
    Of(process).stopped = true;
    clock_.Stop(Of(process).group);
    Reconsider(process);
  }
  void Continue(SimProcess process) {
    Of(process).stopped = false;
    clock_.Continue(Of(process).group);
    Reconsider(process);
  }
  bool IsRunning(SimProcess process) const { return Of(process).endpoint != nullptr; }
  bool IsStopped(SimProcess process) const { return Of(process).stopped; }
  const std::string& NameOf(SimProcess process) const { return Of(process).name; }
  // For what a process does by the clock.
  SimGroup Timers(SimProcess process) const { return Of(process).group; }

  // ---- What an endpoint does

  SimStream Dial(SimProcess from, SimProcess to) {
    const SimStream stream{++last_stream_};
    Stream& of = streams_[stream];
    of.sides[0].process = from;
    of.sides[0].open = true;
    of.sides[1].process = to;
    Of(from).streams.push_back(stream);
    Of(to).streams.push_back(stream);
    Put(stream, of, 0, Item{Kind::kDial, std::nullopt});
    clock_.After(
        options_.connect_timeout,
        [this, stream] {
          Stream* found = Find(stream);
          if (found != nullptr && !found->connected) Lose(stream, 0);
        },
        Of(from).group);
    return stream;
  }
  // If the stream has ended, nothing happens.
  void Send(SimProcess from, SimStream stream, Message message) {
    Stream* of = Find(stream);
    const int side = of == nullptr ? -1 : SideOf(*of, from);
    if (side < 0 || !of->sides[side].open) return;
    ++messages_;
    if (random_.Chance(options_.drop)) return;
    if (random_.Chance(options_.break_stream)) {
      Break(stream);
      return;
    }
    if (random_.Chance(options_.duplicate)) {
      Put(stream, *of, side, Item{Kind::kMessage, message});
    }
    Put(stream, *of, side, Item{Kind::kMessage, std::move(message)});
  }
  // What was sent before still arrives.
  void Close(SimProcess from, SimStream stream) {
    Stream* of = Find(stream);
    const int side = of == nullptr ? -1 : SideOf(*of, from);
    if (side < 0 || !of->sides[side].open) return;
    of->sides[side].open = false;
    of->sides[side].said_close = true;
    Put(stream, *of, side, Item{Kind::kClose, std::nullopt});
  }

  // ---- What goes wrong between them

  void Break(SimStream stream) {
    Stream* of = Find(stream);
    if (of == nullptr) return;
    of->broken = true;
    for (int side = 0; side < 2; ++side) {
      if (of->sides[side].open) LoseAfter(stream, side, Delay());
    }
  }
  // What `from` sends does not reach `to`.
  void Cut(SimProcess from, SimProcess to) {
    cuts_.insert({from, to});
    Reconsider(from, to);
  }
  void Heal(SimProcess from, SimProcess to) {
    cuts_.erase({from, to});
    Reconsider(from, to);
  }
  bool IsCut(SimProcess from, SimProcess to) const { return cuts_.count({from, to}) != 0; }

  // The streams that at least one side believes in.
  std::vector<SimStream> OpenStreams() const {
    std::vector<SimStream> open;
    for (const auto& [stream, of] : streams_) {
      if (of.sides[0].open || of.sides[1].open) open.push_back(stream);
    }
    std::sort(open.begin(), open.end());
    return open;
  }
  // The streams that begin or end at it.
  std::vector<SimStream> StreamsOf(SimProcess process) const { return Of(process).streams; }
  std::uint64_t messages() const { return messages_; }

 private:
  struct Process {
    std::string name;
    SimGroup group = kNoGroup;
    SimEndpoint<Message>* endpoint = nullptr;
    bool machine_up = true;
    bool stopped = false;
    std::vector<SimStream> streams;
  };
  enum class Kind { kDial, kConnected, kMessage, kClose };
  struct Item {
    Kind kind;
    std::optional<Message> message;
    std::uint64_t number = 0;  // in its direction of the stream
  };
  struct Side {
    SimProcess process{};
    bool open = false;
    bool said_close = false;    // and that is on its way
    std::deque<Item> waiting;   // sent while the path was cut
    TimePoint last_arrival{};   // at the other side
    std::uint64_t sent = 0;     // items
    std::uint64_t arrived = 0;  // of the other side's
    bool other_reachable = true;
    std::uint64_t changes = 0;  // of other_reachable
  };
  struct Stream {
    Side sides[2];  // 0 has dialled
    bool connected = false;
    bool broken = false;
  };

  Process& Of(SimProcess process) { return processes_[static_cast<std::size_t>(process)]; }
  const Process& Of(SimProcess process) const {
    return processes_[static_cast<std::size_t>(process)];
  }
  Stream* Find(SimStream stream) {
    const auto it = streams_.find(stream);
    return it == streams_.end() ? nullptr : &it->second;
  }
  int SideOf(const Stream& stream, SimProcess process) const {
    return stream.sides[0].process == process ? 0 : stream.sides[1].process == process ? 1 : -1;
  }
  Duration Delay() { return random_.Between(options_.delay_min, options_.delay_max); }

  // ---- From one side to the other

  void Put(SimStream stream, Stream& of, int from, Item item) {
    Side& side = of.sides[from];
    if (item.number == 0) item.number = ++side.sent;
    if (!side.waiting.empty() || IsCut(side.process, of.sides[1 - from].process)) {
      side.waiting.push_back(std::move(item));
      return;
    }
    Duration delay = Delay();
    while (random_.Chance(options_.resend)) delay += options_.resend_delay;
    side.last_arrival = std::max(side.last_arrival, clock_.now() + delay);
    clock_.At(side.last_arrival, [this, stream, from, item = std::move(item)]() mutable {
      Arrive(stream, from, std::move(item));
    });
  }

  void Arrive(SimStream stream, int from, Item item) {
    Stream* of = Find(stream);
    if (of == nullptr || of->broken) return;
    Side& to = of->sides[1 - from];
    Process& process = Of(to.process);
    if (!process.machine_up) {
      if (!of->sides[0].open && !of->sides[1].open) Forget(stream);
      return;
    }
    if (process.stopped) {
      ArriveAgain(stream, from, std::move(item), process.group);
      return;
    }
    const bool dial = item.kind == Kind::kDial;
    if (process.endpoint == nullptr || (!dial && !to.open)) {
      // Nobody has this stream here: the machine says so, unless that is what the item says.
      if (item.kind != Kind::kClose) LoseAfter(stream, from, Delay());
      if (item.kind == Kind::kClose) Forget(stream);
      return;
    }
    if (item.number != to.arrived + 1) {
      // What came before waited for the process to go on, and comes in this same moment.
      ArriveAgain(stream, from, std::move(item), kNoGroup);
      return;
    }
    ++to.arrived;
    Deliver(stream, *of, 1 - from, std::move(item));
  }
  void ArriveAgain(SimStream stream, int from, Item item, SimGroup group) {
    clock_.At(
        clock_.now(),
        [this, stream, from, item = std::move(item)]() mutable {
          Arrive(stream, from, std::move(item));
        },
        group);
  }

  void Deliver(SimStream stream, Stream& of, int side, Item item) {
    Side& to = of.sides[side];
    SimEndpoint<Message>* endpoint = Of(to.process).endpoint;
    switch (item.kind) {
      case Kind::kDial:
        to.open = true;
        Put(stream, of, side, Item{Kind::kConnected, std::nullopt});
        ReconsiderStream(stream);
        endpoint->OnAccepted(stream, of.sides[1 - side].process);
        return;
      case Kind::kConnected:
        of.connected = true;
        // The other side may have given up meanwhile.
        ReconsiderStream(stream);
        endpoint->OnConnected(stream);
        return;
      case Kind::kMessage:
        endpoint->OnMessage(stream, *std::move(item.message));
        return;
      case Kind::kClose:
        to.open = false;
        Forget(stream);
        endpoint->OnClosed(stream);
        return;
    }
  }

  // ---- How a side hears that a stream has ended

  void LoseAfter(SimStream stream, int side, Duration delay) {
    clock_.After(delay, [this, stream, side] { Lose(stream, side); });
  }
  // By the process's own clock: one that is stopped hears of it when it goes on.
  void Lose(SimStream stream, int side) {
    Stream* of = Find(stream);
    if (of == nullptr || !of->sides[side].open) return;
    Side& lost = of->sides[side];
    Process& process = Of(lost.process);
    if (process.stopped) {
      clock_.At(
          clock_.now(), [this, stream, side] { Lose(stream, side); }, process.group);
      return;
    }
    lost.open = false;
    // The other side hears of it at once or when it can be reached again; see Reconsider.
    TellOther(stream, *of, side);
    if (!of->sides[0].open && !of->sides[1].open) Forget(stream);
    process.endpoint->OnClosed(stream);
  }
  void TellOther(SimStream stream, const Stream& of, int side) {
    const Side& other = of.sides[1 - side];
    const bool reached =
        Of(of.sides[side].process).machine_up && !IsCut(of.sides[side].process, other.process);
    if (other.open && reached) LoseAfter(stream, 1 - side, Delay());
  }

  void Crash(SimProcess process, bool machine_up) {
    Process& of = Of(process);
    of.endpoint = nullptr;
    of.machine_up = machine_up;
    of.stopped = false;
    clock_.CancelAll(of.group);
    const std::vector<SimStream> streams = of.streams;
    for (const SimStream stream : streams) {
      Stream* found = Find(stream);
      if (found == nullptr) continue;
      const int side = SideOf(*found, process);
      Side& lost = found->sides[side];
      if (machine_up && lost.open) {
        // Its system closes what it had open.
        lost.open = false;
        lost.said_close = true;
        Put(stream, *found, side, Item{Kind::kClose, std::nullopt});
      } else if (!machine_up) {
        lost.open = false;
        lost.said_close = false;
        lost.waiting.clear();
      }
      if (!machine_up && !found->sides[1 - side].open && found->connected) Forget(stream);
    }
    Reconsider(process);
  }

  // ---- Silence

  // A process's state has changed.
  void Reconsider(SimProcess process) {
    const std::vector<SimStream> streams = Of(process).streams;
    for (const SimStream stream : streams) ReconsiderStream(stream);
  }
  // A path has.
  void Reconsider(SimProcess a, SimProcess b) {
    const std::vector<SimStream> streams = Of(a).streams;
    for (const SimStream stream : streams) {
      Stream* of = Find(stream);
      if (of != nullptr && SideOf(*of, b) >= 0) ReconsiderStream(stream);
    }
  }
  void ReconsiderStream(SimStream stream) {
    Stream* of = Find(stream);
    if (of == nullptr) return;
    for (int side = 0; side < 2; ++side) {
      Side& self = of->sides[side];
      const Side& other = of->sides[1 - side];
      if (!IsCut(self.process, other.process)) Flush(stream, *of, side);
      // What one side sends must come back as an answer: a cut either way is silence to both.
      const bool reachable = !IsCut(self.process, other.process) &&
                             !IsCut(other.process, self.process) && Of(other.process).machine_up &&
                             !Of(other.process).stopped;
      if (!self.open) continue;
      // A dialler's other side may still be to come.
      const bool gone = !other.open && !other.said_close && (side == 1 || of->connected);
      if (reachable && gone) LoseAfter(stream, side, Delay());
      if (reachable == self.other_reachable) continue;
      self.other_reachable = reachable;
      ++self.changes;
      if (!reachable) WatchSilence(stream, side, self.changes);
    }
  }
  void WatchSilence(SimStream stream, int side, std::uint64_t changes) {
    clock_.After(random_.Between(options_.silence_min, options_.silence_max),
                 [this, stream, side, changes] {
                   Stream* of = Find(stream);
                   if (of != nullptr && of->sides[side].changes == changes) Lose(stream, side);
                 });
  }
  void Flush(SimStream stream, Stream& of, int from) {
    std::deque<Item> waiting;
    waiting.swap(of.sides[from].waiting);
    for (Item& item : waiting) Put(stream, of, from, std::move(item));
  }

  void Forget(SimStream stream) {
    const auto it = streams_.find(stream);
    if (it == streams_.end()) return;
    for (const Side& side : it->second.sides) {
      std::erase(Of(side.process).streams, stream);
    }
    streams_.erase(it);
  }

  SimClock& clock_;
  SimRandom random_;
  const SimNetworkOptions options_;
  std::vector<Process> processes_;
  std::unordered_map<SimStream, Stream> streams_;
  std::uint64_t last_stream_ = 0;
  std::set<std::pair<SimProcess, SimProcess>> cuts_;
  std::uint64_t messages_ = 0;
};

}  // namespace ddprun
