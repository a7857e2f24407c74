// SPDX-License-Identifier: Apache-2.0
// Files and lists that users and schedulers write. The first byte chooses the parser.
#include "launcher/command_line/config_file.h"
#include "launcher/command_line/parse_options.h"
#include "launcher/options/hosts_list.h"
#include "launcher/options/log_specs.h"
#include "rendezvous/base/env_file.h"
#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {

std::vector<std::string> Seeds() {
  return {"cnnodes: 2\nrdzv-conf: {join_timeout: 60}\nenv: {A: '1'}\nprogram: [train, 10]\n",
          "eexport A='1 2'\nB=\"x\\n\"\n# comment\nDDPRUN_TOKEN=abc\n",
          "ha:2,node[01-04,7]:8,[::1]:2,user@b",
          "fa slots=2 max_slots=3\n# comment\nnode[1-3]:2\n",
          "lnode[01-03,7]-ib,other",
          "s0:3,11:1",
          "r0,2,5",
          "g100M:5"};
}

bool Try(std::string_view bytes) {
  if (bytes.empty()) return false;
  static const std::vector<Flag> flags = AllFlags();
  const std::string text(bytes.substr(1));
  switch (bytes[0]) {
    case 'c':
      return ParseConfigFile(text, "c.yaml", flags).ok();
    case 'e': {
      const auto file = ParseEnvFile(text, ".env");
      if (!file.ok()) return false;
      for (const auto& [name, value] : file->variables) {
        Require(IsVariableName(name), "a variable's name is one");
      }
      return true;
    }
    case 'h':
      return ParseHosts(text, "-H").ok();
    case 'f':
      return ParseHostfile(text, "hostfile").ok();
    case 'l':
      return ExpandHostlist(text, "SLURM_NODELIST").ok();
    case 's':
      return ParseStreamSpec(text).has_value();
    case 'r':
      return ParseLocalRanks(text).has_value();
    default:
      return ParseLogRotation(text).has_value();
  }
}

}  // namespace ddprun::fuzz
