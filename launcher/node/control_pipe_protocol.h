// SPDX-License-Identifier: Apache-2.0
// What the head of a run (ddprun -H) and the nodes it has started say to each other over the nodes'
// stdin and stdout, a word a line. Pure. The lines are texts, so that any remote shell carries
// them; what they carry is escaped, so that any bytes pass.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// Of the words below. A node with another one is refused with both versions named.
inline constexpr int kControlPipeVersion = 2;

// ---- Head to node

// What a node is to do. Sent to all nodes at once where one process carries them all (srun), so
// each knows from its number what is meant for it.
struct Setup {
  std::optional<int> node;               // which node this is; absent: as SLURM_PROCID says
  std::vector<std::string> names;        // of the nodes by number, as people know them
  std::string folder;                    // to work in
  std::string token;                     // the run's secret in digits; empty: none
  std::vector<std::string> environment;  // NAME=VALUE, on top of the node's own
  std::vector<std::string> arguments;    // of ddprun on that node, its program among them
};

// To node `node`, or to all that have not begun: go to work, with these flags on top.
struct Go {
  int node = -1;                 // -1: all
  std::optional<int> node_rank;  // absent: none, or the number that SLURM_PROCID gave
  bool serve = false;            // open the service at any port, and say which
  std::vector<std::string> flags;
  bool operator==(const Go&) const = default;
};

// As if the node's ddprun had got this signal.
struct PassSignal {
  int signal = 0;
  bool operator==(const PassSignal&) const = default;
};

// Without the secret: that follows by itself, so that no text with it is left behind.
std::string Encode(const Setup& setup);
// The caller wipes it.
std::string Encode(const Token& token);
std::string Encode(const Go& go);
std::string Encode(const PassSignal& signal);

// A node's side: lines in, a setup until `go`, signals after it.
class SetupReader {
 public:
  // INVALID_ARGUMENT: the line is no word that a head says.
  absl::Status TakeLine(absl::string_view line);
  const Setup& setup() const { return setup_; }
  Setup& setup() { return setup_; }
  // The last one that was heard.
  const std::optional<Go>& go() const { return go_; }

 private:
  Setup setup_;
  std::vector<std::string> flags_;  // since the last go
  std::optional<Go> go_;
};

std::optional<PassSignal> ParseSignal(absl::string_view line);

// ---- Node to head

struct Hello {
  int control_pipe = kControlPipeVersion;
  unsigned protocol = 0;
  std::string version;
  std::string head_address;  // as the node sees it, where ssh says so; else empty
  std::string own_address;   // as the head sees the node; else empty
  bool operator==(const Hello&) const = default;
};

// The first node's service listens.
struct Serving {
  int port = 0;
  bool operator==(const Serving&) const = default;
};

// The service has let the node in: from here on it tells the others what becomes of it.
struct Joined {
  bool operator==(const Joined&) const = default;
};

// What the node would have shown at its end, if it were alone.
struct NodeVerdict {
  std::string text;
  bool operator==(const NodeVerdict&) const = default;
};

// The service has told the node that the run succeeded, and what it was. Nodes of one run say the
// same; an exit code of 0 alone proves nothing.
struct Finished {
  std::string run_id;
  long long round = 0;
  int nodes = 0;
  int world_size = 0;
  bool operator==(const Finished&) const = default;
};

using NodeMessage = std::variant<Hello, Serving, Joined, NodeVerdict, Finished>;

// One line without its end, to be written to stdout.
std::string ToLine(const NodeMessage& word);

// A line of a node's output, marked where it needs to be: what goes to stderr travels on stdout
// too, so that the order of the two is kept and the transport's own words stand alone.
std::string MarkLine(bool is_error, absl::string_view line);

struct OutputLine {
  bool is_error = false;
  absl::string_view text;
};

// std::monostate: the line has a mark that this version does not know.
std::variant<std::monostate, OutputLine, NodeMessage> ParseLine(absl::string_view line);

// Which node's task of srun --label a line is: "3: text". Absent: it has no label.
std::optional<int> TakeLabel(absl::string_view& line);

}  // namespace ddprun
