// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/topology_place.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/options/hosts_list.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr char kPlaceVariable[] = "DDPRUN_TOPOLOGY";

absl::string_view WithoutDomain(absl::string_view host) { return host.substr(0, host.find('.')); }

bool IsSameHost(absl::string_view a, absl::string_view b) {
  return a == b || WithoutDomain(a) == b || a == WithoutDomain(b);
}

}  // namespace

absl::StatusOr<std::string> PlaceInFile(absl::string_view text, const std::string& file,
                                        const std::string& host) {
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    const std::string source = absl::StrCat(file, ":", number);
    if (words.size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat(source, " has ", words.size(),
                                                     " words; write HOSTS PLACE, as n[1-8] rack1"));
    }
    const absl::StatusOr<std::vector<std::string>> hosts = ExpandHostlist(words[0], source);
    if (!hosts.ok()) return hosts.status();
    const bool named = std::any_of(hosts->begin(), hosts->end(),
                                   [&](const std::string& name) { return IsSameHost(name, host); });
    if (!named) continue;
    if (words[1].size() <= kNameBytesMax) return words[1];
    return absl::InvalidArgumentError(absl::StrCat(source, " has a place of ", words[1].size(),
                                                   " bytes; at most ", kNameBytesMax,
                                                   " are allowed"));
  }
  return absl::NotFoundError(absl::StrCat("--topology-file ", file, " does not name host ", host,
                                          "; add a line: ", host, " PLACE"));
}

absl::StatusOr<std::string> FindTopology(const Options& options, const std::string& host,
                                         const GetVariable& get_variable,
                                         const ReadFile& read_file) {
  if (options.rank_order != RankOrder::kTopology) return "";
  if (options.nodes == 1) return host;  // there is nothing to order
  if (!options.topology_file.empty()) {
    const absl::StatusOr<std::string> text = read_file(options.topology_file);
    if (!text.ok()) return text.status();
    return PlaceInFile(*text, options.topology_file, host);
  }
  for (const char* name : {kPlaceVariable, "SLURM_TOPOLOGY_ADDR"}) {
    std::string place = get_variable(name).value_or("");
    if (place.size() > kNameBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " has ", place.size(), " bytes; give a place of at most ", kNameBytesMax));
    }
    if (!place.empty()) return place;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "--rank-order topology needs the place of host ", host, " in the network, and neither ",
      kPlaceVariable, " nor SLURM_TOPOLOGY_ADDR is set; set one, or give --topology-file"));
}

}  // namespace ddprun
