// SPDX-License-Identifier: Apache-2.0
// `ddprun doctor`: the rules that turn the facts of all nodes into findings, sentences with the
// next move. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddprun {

// Not measured, not limited, not there: as each member says.
inline constexpr std::int64_t kNoNumber = -1;

struct InterfaceFacts {
  std::string name;
  int mtu = 0;
  bool up = false;
  bool loopback = false;
};

// The facts of one node. Numbers that are kNoNumber are not limited, or could
// not be found out where that is said.
struct NodeFacts {
  // Who it is.
  int node = 0;  // its --node-rank, or the number that the service gave
  std::string host;
  std::string address;  // where the others reach it; empty: not known
  std::string version;  // of ddprun
  bool hosts_service = false;

  // Where the others' probes go.
  int probe_port = 0;
  std::string probe_key;

  // The network.
  std::string interface;  // that has `address`; empty: none that leads to others
  bool interface_ipv6 = false;
  std::vector<InterfaceFacts> interfaces;
  int default_routes = 0;           // with the lowest metric
  std::string name_address;         // what the host's own name is resolved to; empty: nothing
  double name_seconds = 0;          // that it took
  std::string master_addr;          // as it was given; empty: it was not
  std::string master_resolved;      // what that is here
  std::string gloo_socket_ifname;   // as the user has set it; empty: not set
  std::string nccl_socket_ifname;   // the same, or "nccl.conf" where such a file names interfaces
  int service_port = 0;             // 0: none is needed
  std::string service_port_holder;  // another program that has it here; empty: it is free
  std::string ephemeral_ports;      // "32768-60999"; empty: not known

  // Limits.
  std::int64_t nofile = kNoNumber;
  std::int64_t nofile_hard = kNoNumber;
  std::int64_t memlock = kNoNumber;
  std::int64_t processes = kNoNumber;       // that this user may have
  std::int64_t processes_left = kNoNumber;  // by the cgroup (pids.max)
  bool rdma = false;                        // there are RDMA devices
  std::int64_t shm_bytes = kNoNumber;       // of /dev/shm; kNoNumber: it is not there
  std::int64_t shm_free = kNoNumber;
  std::int64_t memory_free = kNoNumber;   // that this cgroup and machine have left
  std::int64_t memory_limit = kNoNumber;  // of the cgroup
  double cpu_quota = 0;                   // 0: none
  int cpus = 0;
  int workers = 0;            // 0: `workers_error` says why not
  std::string workers_error;  // the sentence that a run would end with

  // The kernel.
  std::string kernel;
  int ptrace_scope = kNoNumber;  // kNoNumber: there is no Yama
  bool may_ptrace = false;       // by capability, whatever Yama says
  bool cgroup = false;           // one can be made for each round
  int overcommit = 0;
  bool core_files = false;   // ulimit -c is not 0
  std::string core_pattern;  // kernel.core_pattern

  // GPUs and libraries.
  std::string driver;  // NVIDIA's; empty: it is not loaded
  int gpus = 0;
  std::vector<std::string> gpu_models;           // without repetition
  std::map<std::string, std::string> libraries;  // "NCCL" -> "2.27.7", "LibTorch", "CUDA driver"
  std::map<std::string, std::string> packages;   // of --python

  // What the workers inherit, and the program. A value is a text, or for those that are nobody
  // else's business kHashMark and a hash.
  std::map<std::string, std::string> environment;
  std::string folder;
  std::string program;        // empty: none was named
  std::string program_hash;   // of its file
  std::string program_error;  // the sentence that a run would end with
  std::string secret;         // where it comes from, in words
  std::string secret_error;
};

inline constexpr char kHashMark = '#';

// What `from` found when it connected to `to`.
struct PairFacts {
  int from = 0;
  int to = 0;
  std::string error;  // empty: it could
  double rtt_seconds = 0;
  double skew_seconds = 0;      // how far the clock of `to` is ahead
  double skew_uncertainty = 0;  // half of the shortest round trip
  double bytes_per_second = 0;  // 0: not measured
};

struct Checkup {
  int nodes_wanted = 1;
  std::string rendezvous_error;       // why this node met no other one; empty: it did
  std::vector<std::string> silences;  // nodes that came and then failed, in words
  std::chrono::milliseconds timeout{0};
  bool numbered = true;          // the nodes have --node-rank: who is missing can be named
  bool by_head = false;          // one command has started them
  std::vector<NodeFacts> nodes;  // by `node`
  std::vector<PairFacts> pairs;
};

enum class Health { kOk, kWarning, kFail };

struct Finding {
  std::string check;  // one word
  Health health = Health::kOk;
  std::vector<int> nodes;  // ascending; empty: it is about the run
  std::string text;        // the fact, and where it is no ok the next move
  bool operator==(const Finding&) const = default;
};

// In the order of the checks; what is equal on several nodes is one finding.
std::vector<Finding> Diagnose(const Checkup& checkup);

// The parts, each in a file of its own: who came, the ways between nodes; the machines; what should
// be the same everywhere.
void DiagnoseMeeting(const Checkup& checkup, std::vector<Finding>& findings);
void DiagnoseNetwork(const Checkup& checkup, std::vector<Finding>& findings);
void DiagnoseMachines(const Checkup& checkup, std::vector<Finding>& findings);
void DiagnoseDifferences(const Checkup& checkup, std::vector<Finding>& findings);

// 1: there is a FAIL.
int ExitCodeOf(const std::vector<Finding>& findings);

// "node 3", "nodes 0-3,7".
std::string NodesInWords(const std::vector<int>& nodes);

// "16 MiB", "3.5 GiB".
std::string BytesInWords(std::int64_t bytes);

// By facts alone: a value of `NCCL_SOCKET_IFNAME` (a list of beginnings, "=" for whole names, "^"
// for all but these) or GLOO_SOCKET_IFNAME (a list of whole names) allows this interface.
bool NcclAllows(const std::string& value, const std::string& interface);
bool GlooNames(const std::string& value, const std::string& interface);

}  // namespace ddprun
