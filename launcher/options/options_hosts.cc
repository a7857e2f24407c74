// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

// Flags that the head sets for each node, or that concern the head alone. The secret is sent
// separately.
constexpr FlagName kHeadFlags[] = {
    "--nnodes"_flag,      "--node-rank"_flag,     "--nproc-per-node"_flag, "--master-addr"_flag,
    "--master-port"_flag, "--rdzv-endpoint"_flag, "--rdzv-id"_flag,        "--standalone"_flag,
    "--token-file"_flag,  "--ntasks"_flag,        "--detach"_flag};

// What the head has done: what files say is in the other values.
constexpr FlagName kDoneFlags[] = {"--config"_flag, "--env-file"_flag, "--dry-run"_flag};

bool IsForwarded(const std::string& flag) {
  const auto is_flag = [&](FlagName other) { return flag == other.text; };
  return std::none_of(std::begin(kHeadFlags), std::end(kHeadFlags), is_flag) &&
         std::none_of(std::begin(kDoneFlags), std::end(kDoneFlags), is_flag) &&
         std::none_of(std::begin(kHostFlags), std::end(kHostFlags),
                      [&](const Flag& other) { return flag == other.name; });
}

void CheckHostsTogether(Reader& reader, const HostOptions& options) {
  const int ways = !options.hosts.empty() + !options.hostfile.empty() + options.srun;
  if (ways > 1) {
    reader.FailWith("-H, --hostfile and --srun each say where the nodes are; give one of them");
  }
  for (const FlagName flag : {"--standalone"_flag, "--node-rank"_flag}) {
    if (ways > 0 && reader.Find(flag) != nullptr) {
      reader.FailWith(absl::StrCat(flag.text,
                                   " is for a ddprun that is started on each node by itself, "
                                   "and this one starts them all; leave it out"));
    }
  }
  if (options.srun && !options.rsh.empty()) {
    reader.FailWith("--srun and --rsh contradict each other; leave one of them out");
  }
  for (const FlagName flag :
       {"--rsh"_flag, "--launch-agent"_flag, "--wdir"_flag, "--export"_flag}) {
    if (ways == 0 && reader.Find(flag) != nullptr) {
      reader.FailWith(absl::StrCat(reader.Find(flag)->source,
                                   " is for nodes that are started from here; give their hosts "
                                   "with -H, --hostfile or --srun"));
    }
  }
}

}  // namespace

void ReadInto(Reader& reader, const Flag&, const Value& value, std::vector<HostEntry>& to) {
  absl::StatusOr<std::vector<HostEntry>> hosts = ParseHosts(value.text, value.source);
  reader.Check(hosts.status());
  if (hosts.ok()) to = *std::move(hosts);
}

void ReadExports(Reader& reader, const Flag&, const Value& value, Options& options) {
  for (const absl::string_view entry : absl::StrSplit(value.text, kRepeatSeparator)) {
    if (entry.empty() || entry.front() == '=') {
      return reader.Fail({std::string(entry), value.source}, "NAME or NAME=VALUE");
    }
    options.hosts.exports.emplace_back(entry);
  }
}

void FinishHosts(Reader& reader, const Values& values, Options& options) {
  options.hosts.has_nnodes = reader.Find("--nnodes"_flag) != nullptr;
  options.hosts.has_nproc = reader.Find("--nproc-per-node"_flag) != nullptr;
  for (const auto& [flag, value] : values) {
    if (IsForwarded(flag))
      options.hosts.forwarded.push_back(FlagName(flag.c_str()).With(value.text));
  }
  CheckHostsTogether(reader, options.hosts);
}

}  // namespace ddprun
