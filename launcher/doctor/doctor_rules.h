// SPDX-License-Identifier: Apache-2.0
// `ddprun doctor`: the rules that turn the facts of all nodes into findings, which are sentences
// that end with the next move. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun {

// Not limited, or not known: each member says which.
inline constexpr std::int64_t kNoNumber = -1;

struct InterfaceFacts {
  std::string name;
  int mtu = 0;
  bool up = false;
  bool loopback = false;
};

// The facts of one node. kNoNumber means "not limited" where nothing else is said.
struct NodeFacts {
  // Identity.
  int node = 0;  // its --node-rank, or the number that the service assigned
  std::string host;
  std::string address;  // at which the other nodes reach it; empty: not known
  std::string version;  // of ddprun
  bool hosts_service = false;

  // For the probes of the other nodes.
  int probe_port = 0;
  std::string probe_key;

  // The network.
  std::string interface;  // that has `address`; empty: none
  bool interface_ipv6 = false;
  std::vector<InterfaceFacts> interfaces;
  int default_routes = 0;           // with the lowest metric
  std::string name_address;         // to which the host's own name resolves; empty: none
  double name_seconds = 0;          // the time to resolve it
  std::string master_addr;          // of the command line; empty: not given
  std::string master_resolved;      // its address on this node
  std::string gloo_socket_ifname;   // the user's variable; empty: not set
  std::string nccl_socket_ifname;   // the same, or "nccl.conf" if that file names interfaces
  int service_port = 0;             // 0: none is needed
  std::string service_port_holder;  // the program that uses it; empty: it is free
  std::string ephemeral_ports;      // "32768-60999"; empty: not known

  // Limits.
  std::int64_t nofile = kNoNumber;
  std::int64_t nofile_hard = kNoNumber;
  std::int64_t memlock = kNoNumber;
  std::int64_t processes = kNoNumber;       // limit of this user
  std::int64_t processes_left = kNoNumber;  // of the cgroup's limit (pids.max)
  bool rdma = false;                        // the machine has RDMA devices
  std::int64_t shm_bytes = kNoNumber;       // of /dev/shm; kNoNumber: it does not exist
  std::int64_t shm_free = kNoNumber;
  std::int64_t memory_free = kNoNumber;   // of this cgroup and machine; kNoNumber: not known
  std::int64_t memory_limit = kNoNumber;  // of the cgroup
  double cpu_quota = 0;                   // 0: none
  int cpus = 0;
  int workers = 0;            // 0: see `workers_error`
  std::string workers_error;  // with which a run would end

  // The kernel.
  std::string kernel;
  int ptrace_scope = kNoNumber;  // kNoNumber: the kernel has no Yama
  bool may_ptrace = false;       // has CAP_SYS_PTRACE, which overrides Yama
  bool cgroup = false;           // a cgroup can be made for each round
  int overcommit = 0;
  bool core_files = false;   // ulimit -c is not 0
  std::string core_pattern;  // kernel.core_pattern

  // GPUs and libraries.
  std::string driver;  // NVIDIA's version; empty: not loaded
  int gpus = 0;
  std::vector<std::string> gpu_models;           // without duplicates
  std::map<std::string, std::string> libraries;  // "NCCL" -> "2.27.7", "LibTorch", "CUDA driver"
  std::map<std::string, std::string> packages;   // of --python

  // The environment of the workers, and the program. Values that may be private are replaced by
  // kHashMark and a hash.
  std::map<std::string, std::string> environment;
  std::string folder;
  std::string program;        // empty: not given
  std::string program_hash;   // of its file
  std::string program_error;  // with which a run would end
  std::string secret;         // its source, in words
  std::string secret_error;
};

inline constexpr char kHashMark = '#';

// The measurements of `from` on its connection to `to`.
struct PairFacts {
  int from = 0;
  int to = 0;
  std::string error;  // empty: connected
  double rtt_seconds = 0;
  double skew_seconds = 0;      // of the clock of `to`; positive: it is ahead
  double skew_uncertainty = 0;  // half of the shortest round trip
  double bytes_per_second = 0;  // 0: not measured
};

struct Checkup {
  int nodes_wanted = 1;
  std::string rendezvous_error;       // why this node met no other node; empty: it did
  std::vector<std::string> silences;  // sentences on nodes that joined and then failed
  std::chrono::milliseconds timeout{0};
  bool numbered = true;          // the nodes have --node-rank: missing ones can be named
  bool by_head = false;          // the nodes were started by ddprun -H
  std::vector<NodeFacts> nodes;  // by `node`
  std::vector<PairFacts> pairs;
};

enum class Health { kOk, kWarning, kFail };

struct Finding {
  std::string check;  // one word
  Health health = Health::kOk;
  std::vector<int> nodes;  // ascending; empty: the finding concerns the run
  std::string text;        // the fact, and the next move unless it is ok
  bool operator==(const Finding&) const = default;
};

// What a check says, as a function of the facts. The parts are those of absl::StrCat().
struct Judgement {
  Health health = Health::kOk;
  std::string text;  // empty: nothing is known
};

template <typename... Parts>
Judgement Ok(const Parts&... parts) {
  return {Health::kOk, absl::StrCat(parts...)};
}
template <typename... Parts>
Judgement Warn(const Parts&... parts) {
  return {Health::kWarning, absl::StrCat(parts...)};
}
template <typename... Parts>
Judgement Fail(const Parts&... parts) {
  return {Health::kFail, absl::StrCat(parts...)};
}

struct Findings {
  std::vector<Finding> list;

  void Add(const char* check, std::vector<int> nodes, Judgement judgement) {
    if (judgement.text.empty()) return;
    list.push_back({check, judgement.health, std::move(nodes), std::move(judgement.text)});
  }
};

// In the order of the checks. Equal findings of several nodes are one finding.
std::vector<Finding> Diagnose(const Checkup& checkup);

// Its parts, each in a file of its own: membership; the network between the nodes; each machine;
// what should be equal on all nodes.
void DiagnoseMeeting(const Checkup& checkup, Findings& findings);
void DiagnoseNetwork(const Checkup& checkup, Findings& findings);
void DiagnoseMachines(const Checkup& checkup, Findings& findings);
void DiagnoseDifferences(const Checkup& checkup, Findings& findings);

// 1 if any finding is kFail, else 0.
int ExitCodeOf(const std::vector<Finding>& findings);

// "node 3", "nodes 0-3,7".
std::string NodesText(const std::vector<int>& nodes);

// "1 GPU", "2 GPUs".
std::string Counted(int count, const char* what);

// "16 MiB", "3.5 GiB".
std::string BytesText(std::int64_t bytes);

// True for variables of the libraries that workers use between nodes (NCCL_*, OMP_*, ...).
bool ConfiguresLibraries(absl::string_view name);

// True if a value of NCCL_SOCKET_IFNAME (a list of prefixes, with "=" of whole names, with "^" of
// exceptions) or of GLOO_SOCKET_IFNAME (a list of names) allows this interface.
bool NcclAllows(const std::string& value, const std::string& interface);
bool GlooNames(const std::string& value, const std::string& interface);

// ---- The output

// Lines of at most 80 columns.
std::string DoctorText(const Checkup& checkup, const std::vector<Finding>& findings);

// One line of JSON. It does not contain the nodes' environments, apart from the findings on them.
std::string DoctorJson(const Checkup& checkup, const std::vector<Finding>& findings);

}  // namespace ddprun
