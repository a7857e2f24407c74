// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

// Flags that the head sets for each node, or that concern the head alone. The secret is sent
// separately.
constexpr const char* kHeadFlags[] = {
    "--nnodes",        "--node-rank", "--nproc-per-node", "--master-addr", "--master-port",
    "--rdzv-endpoint", "--rdzv-id",   "--standalone",     "--token-file",  "--ntasks"};

// What the head has done: what files say is in the other values.
constexpr const char* kDoneFlags[] = {"--config", "--env-file", "--dry-run"};

bool IsForwarded(const std::string& flag) {
  const auto is_flag = [&](const char* other) { return flag == other; };
  return std::none_of(std::begin(kHeadFlags), std::end(kHeadFlags), is_flag) &&
         std::none_of(std::begin(kDoneFlags), std::end(kDoneFlags), is_flag) &&
         std::none_of(kHostFlags.begin(), kHostFlags.end(),
                      [&](const Flag& other) { return flag == other.name; });
}

void ReadExports(Reader& reader, HostOptions& options) {
  const Value* value = reader.Find("--export");
  if (value == nullptr) return;
  for (const absl::string_view entry : absl::StrSplit(value->text, kRepeatSeparator)) {
    if (entry.empty() || entry.front() == '=') {
      return reader.Fail({std::string(entry), value->source}, "NAME or NAME=VALUE");
    }
    options.exports.emplace_back(entry);
  }
}

void CheckHostsTogether(Reader& reader, const HostOptions& options) {
  const int ways = !options.hosts.empty() + !options.hostfile.empty() + options.srun;
  if (ways > 1) {
    reader.FailWith("-H, --hostfile and --srun each say where the nodes are; give one of them");
  }
  for (const char* flag : {"--standalone", "--node-rank"}) {
    if (ways > 0 && reader.Find(flag) != nullptr) {
      reader.FailWith(absl::StrCat(flag,
                                   " is for a ddprun that is started on each node by itself, "
                                   "and this one starts them all; leave it out"));
    }
  }
  if (options.srun && !options.rsh.empty()) {
    reader.FailWith("--srun and --rsh contradict each other; leave one of them out");
  }
  for (const char* flag : {"--rsh", "--launch-agent", "--wdir", "--export"}) {
    if (ways == 0 && reader.Find(flag) != nullptr) {
      reader.FailWith(absl::StrCat(reader.Find(flag)->source,
                                   " is for nodes that are started from here; give their hosts "
                                   "with -H, --hostfile or --srun"));
    }
  }
}

}  // namespace

const std::vector<Flag> kHostFlags = {
    {"--hosts", 'H', "HOST[:N],...",
     "Start a node on each host over ssh, with N workers; node[01-04]:8 names four hosts."},
    {"--hostfile", 0, "FILE",
     "Read the hosts from a file: one HOST, HOST:N or HOST slots=N a line."},
    {"--srun", 0, nullptr, "Start a node on each host of this Slurm allocation."},
    {"--rsh", 0, "COMMAND", "Run COMMAND HOST DDPRUN... instead of ssh (\"ssh -p 2222\")."},
    {"--launch-agent", 0, "COMMAND",
     "Command for ddprun on the hosts (the path of this ddprun, else the one in PATH there)."},
    {"--wdir", 0, "FOLDER", "Working folder on the hosts (this one)."},
    {"--export", 'x', "NAME[=VALUE]",
     "Send this variable to the hosts, too; may be repeated. Variables of this machine are not "
     "sent.",
     true},
};

HostOptions ReadHostOptions(Reader& reader, const Values& values) {
  HostOptions options;
  if (const Value* value = reader.Find("--hosts")) {
    absl::StatusOr<std::vector<HostEntry>> hosts = ParseHosts(value->text, value->source);
    if (hosts.ok()) {
      options.hosts = *std::move(hosts);
    } else {
      reader.FailWith(std::string(hosts.status().message()));
    }
  }
  options.hostfile = reader.Text("--hostfile", "a file", "");
  options.srun = reader.Switch("--srun");
  options.rsh = reader.Text("--rsh", "a command", "");
  options.launch_agent = reader.Text("--launch-agent", "a command", "");
  options.wdir = reader.Text("--wdir", "a folder", "");
  options.has_nnodes = reader.Find("--nnodes") != nullptr;
  options.has_nproc = reader.Find("--nproc-per-node") != nullptr;
  ReadExports(reader, options);
  for (const auto& [flag, value] : values) {
    if (IsForwarded(flag)) options.forwarded.push_back(absl::StrCat(flag, "=", value.text));
  }
  CheckHostsTogether(reader, options);
  return options;
}

}  // namespace ddprun
