// SPDX-License-Identifier: Apache-2.0
// The messages between the head of a run (ddprun -H) and the nodes that it has started, over the
// nodes' stdin and stdout: JSON, one object a line, so that any remote shell carries them. Members
// that are not known are ignored. Pure.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// Version of the messages below. A node with another one is rejected with both versions named.
inline constexpr int kControlPipeVersion = 3;

// ---- Head to node

// The setup of a node. If one process connects all nodes (srun), each node receives all messages
// and recognizes its own by the number.
struct Setup {
  std::optional<int> node;               // which node this is; absent: SLURM_PROCID
  std::vector<std::string> names;        // of the nodes by number, as the user wrote them
  std::string folder;                    // to work in
  std::string token;                     // the run's secret in digits; empty: none
  std::vector<std::string> environment;  // NAME=VALUE, on top of the node's own
  std::vector<std::string> arguments;    // of ddprun on that node, its program among them
};

// To node `node`, or to all that have not begun: start, with these additional flags.
struct Go {
  int node = -1;                 // -1: all
  std::optional<int> node_rank;  // absent: none, or the number that SLURM_PROCID gave
  bool serve = false;            // open the service at any port, and report which
  std::vector<std::string> flags;
  bool operator==(const Go&) const = default;
};

// The node acts as if its ddprun had received this signal.
struct PassSignal {
  int signal = 0;
  bool operator==(const PassSignal&) const = default;
};

// What the head read from its own stdin, for node `node`: one for each StdinWanted.
struct PassStdin {
  int node = 0;
  std::string bytes;
  bool end = false;  // nothing follows
  bool operator==(const PassStdin&) const = default;
};

// Without the secret, which is sent separately so that no copies of it remain in memory.
std::string Encode(const Setup& setup);
// The caller wipes it.
std::string Encode(const Token& token);
std::string Encode(const Go& go);
std::string Encode(const PassSignal& signal);
std::string Encode(const PassStdin& input);

// A node's side: lines in, a setup until `go`, signals after it.
class SetupReader {
 public:
  // INVALID_ARGUMENT: the line is no message of a head.
  absl::Status TakeLine(absl::string_view line);
  const Setup& setup() const { return setup_; }
  Setup& setup() { return setup_; }
  // The last one that was received.
  const std::optional<Go>& go() const { return go_; }

 private:
  Setup setup_;
  std::optional<Go> go_;
};

std::optional<PassSignal> ParseSignal(absl::string_view line);
std::optional<PassStdin> ParseStdin(absl::string_view line);

// ---- Node to head

struct Hello {
  int control_pipe = kControlPipeVersion;
  unsigned protocol = 0;
  std::string version;
  std::string head_address;  // as seen by the node, from ssh; else empty
  std::string own_address;   // as seen by the head; else empty
  bool operator==(const Hello&) const = default;
};

// The first node's service listens.
struct Serving {
  int port = 0;
  bool operator==(const Serving&) const = default;
};

// The service has accepted the node: from here on it informs the others about it.
struct Joined {
  bool operator==(const Joined&) const = default;
};

// What the node would have printed at its end without a head.
struct NodeVerdict {
  std::string text;
  bool operator==(const NodeVerdict&) const = default;
};

// The service has reported to the node that the run succeeded. All nodes of a run send the same; an
// exit code of 0 alone proves nothing.
struct Finished {
  std::string run_id;
  long long round = 0;
  int nodes = 0;
  int world_size = 0;
  bool operator==(const Finished&) const = default;
};

// The rank of --stdin is on this node, and has taken what was sent before.
struct StdinWanted {
  bool operator==(const StdinWanted&) const = default;
};

// Workers of the node have started.
struct RoundBegun {
  bool operator==(const RoundBegun&) const = default;
};

using NodeMessage =
    std::variant<Hello, Serving, Joined, NodeVerdict, Finished, StdinWanted, RoundBegun>;

// One line without its end, to be written to stdout.
std::string ToLine(const NodeMessage& message);

// A line of a node's output, marked where it needs to be: what goes to stderr travels on stdout
// too, so that the order of the two is kept and the transport's own output stands alone.
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
