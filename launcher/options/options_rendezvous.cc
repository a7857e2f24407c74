// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/options/run_flags.h"

namespace ddprun {

void ReadNodes(Reader& reader, const Flag&, const Value& value, Options& options) {
  const std::vector<std::string> parts = absl::StrSplit(value.text, ':');
  int min = 0;
  int max = 0;
  if (parts.size() > 2 || !absl::SimpleAtoi(parts.front(), &min) ||
      !absl::SimpleAtoi(parts.back(), &max) || min < 1 || max < min || max > kNodesMax) {
    return reader.Fail(value,
                       absl::StrCat("a number of nodes from 1 to ", kNodesMax, ", or MIN:MAX"));
  }
  options.nodes_min = min;
  options.nodes = max;
}

void ReadMasterAddr(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  std::string address;
  ReadInto(reader, flag, value, address);
  // torchrun requires brackets around an IPv6 address.
  if (absl::StartsWith(address, "[") && absl::EndsWith(address, "]"))
    address = address.substr(1, address.size() - 2);
  options.master_addr = std::move(address);
}

void ReadRunId(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  ReadInto(reader, flag, value, options.run_id);
  if (options.run_id.find('/') != std::string::npos || options.run_id == "." ||
      options.run_id == "..") {
    reader.Fail(value, "a name without '/', which it must be as it also names a log folder");
  }
  // torchrun's name for a run without a name; two such runs would merge.
  if (options.run_id == "none") options.run_id.clear();
}

void ReadJournal(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  ReadInto(reader, flag, value, options.journal);
  if (!IsEtcdAddress(value.text)) {
    return reader.Fail(value,
                       "etcd://HOST:PORT[,...][/PREFIX]; a journal in a folder is "
                       "ddprun-rendezvous's");
  }
  reader.Check(ParseEtcdAddress(value.text).status());
}

void CheckBackend(Reader& reader, const Flag&, const Value& value, Options&) {
  if (value.text == "static" || value.text == "c10d") return;
  if (absl::StartsWith(value.text, "etcd")) {
    return reader.FailWith(absl::StrCat(
        value.source, " ", value.text,
        " is not needed: for a rendezvous that outlives every node run `ddprun-rendezvous --host "
        "ADDRESS --journal FOLDER` and give --rdzv-endpoint ADDRESS on all nodes (or keep what "
        "must "
        "survive in etcd: --journal etcd://HOST:PORT,...)"));
  }
  reader.FailWith(
      absl::StrCat(value.source, " '", value.text,
                   "' is not known: ddprun has a rendezvous service of its own and takes static "
                   "and c10d as names for it"));
}

}  // namespace ddprun
