// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/doctor_words.h"

#include <nlohmann/json.hpp>

#include "launcher/base/limits.h"

namespace ddprun {

// Members that a node of another version does not send keep their defaults; unknown members are
// ignored.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(InterfaceFacts, name, mtu, up, loopback)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    NodeFacts, node, host, address, version, hosts_service, probe_port, probe_key, interface,
    interface_ipv6, interfaces, default_routes, name_address, name_seconds, master_addr,
    master_resolved, gloo_socket_ifname, nccl_socket_ifname, service_port, service_port_holder,
    ephemeral_ports, nofile, nofile_hard, memlock, processes, processes_left, rdma, shm_bytes,
    shm_free, memory_free, memory_limit, cpu_quota, cpus, workers, workers_error, kernel,
    ptrace_scope, may_ptrace, cgroup, overcommit, core_files, core_pattern, driver, gpus,
    gpu_models, libraries, packages, environment, folder, program, program_hash, program_error,
    secret, secret_error)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PairFacts, from, to, error, rtt_seconds,
                                                skew_seconds, skew_uncertainty, bytes_per_second)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DoctorReport, exit_code, text, json)

namespace {

using Json = nlohmann::json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The library reports errors as exceptions, which are converted here.
template <typename Value>
absl::StatusOr<Value> Parse(const std::string& words, const char* what) {
  try {
    return Json::parse(words).get<Value>();
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError(std::string(what) +
                                      " of another node cannot be read; install the same ddprun "
                                      "on all nodes");
  }
}

}  // namespace

std::string Encode(const NodeFacts& facts) {
  std::string words = Dump(facts);
  if (words.size() <= kFactsBytesMax) return words;
  NodeFacts fewer = facts;
  fewer.environment.clear();
  return Dump(fewer);
}

std::string Encode(const std::vector<PairFacts>& pairs) { return Dump(pairs); }

std::string Encode(const DoctorReport& report) {
  std::string words = Dump(report);
  if (words.size() <= kReportBytesMax) return words;
  DoctorReport fewer = report;
  fewer.json.clear();
  return Dump(fewer);
}

absl::StatusOr<NodeFacts> ParseNodeFacts(const std::string& words) {
  return Parse<NodeFacts>(words, "what was found out");
}

absl::StatusOr<std::vector<PairFacts>> ParsePairFacts(const std::string& words) {
  return Parse<std::vector<PairFacts>>(words, "the measurements");
}

absl::StatusOr<DoctorReport> ParseDoctorReport(const std::string& words) {
  return Parse<DoctorReport>(words, "the report");
}

}  // namespace ddprun
