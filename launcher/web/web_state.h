// SPDX-License-Identifier: Apache-2.0
// What the page of a run shows: samples, nodes, events and lines in, JSON out: the whole, for a
// page that is opened, and what has changed since the last time, for all that are open. Pure.
//
// All is bounded: of samples every second one goes when there are kWebPointsMax, so that a run of
// any length has some; of the others the oldest go. WEB.md documents the JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/runs/run_sample.h"

namespace ddprun {

class WebState {
 public:
  using Json = nlohmann::ordered_json;

  explicit WebState(const std::string& name);

  // Nodes that it does not name are gone. Samples come in the order in which they were taken.
  void OnSample(const RunSample& sample);
  // What there is to say about the whole run: any object. One that is equal changes nothing.
  void OnRun(const Json& run);
  // `line`: as the service sent it, of which a second one is ignored (a watch that begins anew
  // sends them again). `event`: the same. `words`: for people.
  void OnEvent(const std::string& line, const Json& event, const std::string& words);
  void OnLine(const std::string& text);
  // Curves of another run, to be drawn beside this one's. Not in a delta.
  void Compare(const WebState& other);

  const std::vector<Json>& samples() const { return samples_; }
  // With whether the pages may ask for `control`.
  std::string Snapshot(bool control) const;
  // Since the last call. Empty: nothing.
  std::string TakeDelta();

 private:
  struct Node {
    SampledNode now;
    bool gone = false;
  };
  struct Change {  // of a node's state, so that a page can show any moment
    std::int64_t time_ms = 0;
    std::size_t slot = 0;
    int before = 0;
    int after = 0;
  };

  void OnNodes(const std::vector<SampledNode>& nodes, std::int64_t time_ms);
  void Put(std::size_t slot, const SampledNode& node, std::int64_t time_ms);
  void Thin();
  Json NodeJson(std::size_t slot) const;

  Json run_ = Json::object();
  bool run_changed_ = false;
  std::vector<Json> samples_;
  std::int64_t shift_ms_ = 0;  // by which the clock was set back: the curves go on
  std::vector<Json> others_;   // runs with their samples
  std::int64_t spacing_ms_;
  std::vector<Node> nodes_;
  std::map<std::string, std::size_t> slots_;  // by node id
  std::deque<Change> changes_;
  std::deque<Json> events_;
  std::deque<std::size_t> seen_;  // hashes of the events
  std::deque<std::string> lines_;

  Json delta_ = Json::object();
};

// The page with `state` in it: it then asks for nothing. "null": it asks for /events. `nonce`:
// random and new for each page: only scripts and styles with it are run.
std::string WebPage(const std::string& state, const std::string& nonce);

}  // namespace ddprun
