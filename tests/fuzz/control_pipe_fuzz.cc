// SPDX-License-Identifier: Apache-2.0
// Lines between the head of -H and its nodes, which a remote shell's output may be mixed with.
#include "launcher/node/control_pipe_protocol.h"
#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {

std::vector<std::string> Seeds() {
  Setup setup;
  setup.node = 1;
  setup.names = {"a", "b"};
  setup.folder = "/tmp";
  setup.environment = {"A=1"};
  setup.arguments = {"ddprun", "train"};
  return {Encode(setup),
          Encode(Go{.node = 1, .node_rank = 2, .serve = true, .flags = {"--nnodes=2"}}),
          Encode(PassSignal{15}),
          Encode(PassStdin{.node = 1, .bytes = "a\nb", .end = true}),
          ToLine(StdinWanted{}),
          ToLine(Hello{.protocol = 3, .version = "1", .head_address = "h", .own_address = "o"}),
          ToLine(Serving{29500}),
          ToLine(Joined{}),
          ToLine(NodeVerdict{"failed"}),
          ToLine(Finished{.run_id = "r", .round = 1, .nodes = 2, .world_size = 4}),
          MarkLine(true, "an error"),
          "3: " + MarkLine(false, "output")};
}

bool Try(std::string_view bytes) {
  absl::string_view line(bytes.data(), bytes.size());
  (void)TakeLabel(line);
  const auto parsed = ParseLine(line);
  if (const auto* message = std::get_if<NodeMessage>(&parsed)) {
    const auto again = ParseLine(ToLine(*message));
    const auto* same = std::get_if<NodeMessage>(&again);
    Require(same != nullptr && *same == *message, "a message is read as it was written");
  }
  SetupReader reader;
  const bool from_head =
      reader.TakeLine(line).ok() || ParseSignal(line).has_value() || ParseStdin(line).has_value();
  return from_head || !std::holds_alternative<std::monostate>(parsed);
}

}  // namespace ddprun::fuzz
