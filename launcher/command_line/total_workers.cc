// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/total_workers.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "launcher/options/run_flags.h"

namespace ddprun {
namespace {

constexpr FlagName kTotalFlag = "--ntasks"_flag;

// "-n 8", as nearly everybody writes it.
std::string Name(const Value& value) {
  return absl::StrCat(value.source == kTotalFlag.text ? "-n" : value.source, " ", value.text);
}

std::string Name(const Value* value) { return absl::StrCat(value->source, " ", value->text); }

// From the total and the workers of each node.
void FindNodes(Reader& reader, const Value& total, const Value* each, Options& options) {
  const int workers = *options.total_workers;
  const int share = options.proc_per_node_number;
  if (workers % share != 0) {
    return reader.FailWith(absl::StrCat(
        Name(total), " is no multiple of ", Name(each),
        ", which is the number on each node; change one of them, or leave the second one out"));
  }
  options.nodes = options.nodes_min = workers / share;
  const bool met = options.endpoint.has_value() || options.master_addr.has_value();
  if (options.nodes > kNodesMax || (options.nodes > 1 && !met)) {
    reader.FailWith(absl::StrCat(
        Name(total), " with ", share, share == 1 ? " worker" : " workers", " on each node needs ",
        options.nodes,
        " nodes, and no other node is named; give hosts with -H, or --master-addr and --node-rank "
        "on each node"));
  }
}

// From the total and the number of nodes.
void FindShare(Reader& reader, const Value& total, const Value* each, Options& options) {
  const int workers = *options.total_workers;
  if (each != nullptr && options.proc_per_node_number * options.nodes != workers) {
    return reader.FailWith(absl::StrCat(
        Name(total), " contradicts ", Name(each), " on ", options.nodes,
        options.nodes == 1 ? " node" : " nodes", ", which makes ",
        options.proc_per_node_number * options.nodes, "; leave one of the numbers out"));
  }
  if (workers % options.nodes != 0) {
    return reader.FailWith(absl::StrCat(Name(total), " cannot be divided evenly among ",
                                        options.nodes, " nodes; give a multiple of ", options.nodes,
                                        ", or --nproc-per-node on each node"));
  }
  options.proc_per_node = ProcPerNode::kNumber;
  options.proc_per_node_number = workers / options.nodes;
  if (options.proc_per_node_number > kLocalWorldSizeMax) {
    reader.FailWith(absl::StrCat(Name(total), " are ", options.proc_per_node_number,
                                 " workers on a node, and at most ", kLocalWorldSizeMax,
                                 " can be; start fewer, or use more nodes"));
  }
}

}  // namespace

void FollowTotal(Reader& reader, Options& options) {
  const Value* total = reader.Find(kTotalFlag);
  if (total == nullptr || !reader.status().ok()) return;
  const Value* each = reader.Find("--nproc-per-node"_flag);
  if (each != nullptr && options.proc_per_node != ProcPerNode::kNumber) {
    return reader.FailWith(absl::StrCat(Name(*total), " and ", Name(each),
                                        " both say how many workers there are; leave one of them "
                                        "out"));
  }
  if (options.nodes_min != options.nodes) {
    return reader.FailWith(absl::StrCat(
        Name(*total), " needs a fixed number of nodes, and --nnodes is ", options.nodes_min, ":",
        options.nodes, "; give --nproc-per-node instead of it"));
  }
  if (options.hosts.asked()) return;
  // More than one without --nnodes: those of a Slurm step.
  const bool knows_nodes =
      reader.Find("--nnodes"_flag) != nullptr || options.standalone || options.nodes > 1;
  if (each != nullptr && !knows_nodes) return FindNodes(reader, *total, each, options);
  FindShare(reader, *total, each, options);
}

}  // namespace ddprun
