// SPDX-License-Identifier: Apache-2.0
// What a worker writes to DDPRUN_NOTIFY_SOCKET.
#include "proto/progress_message.h"
#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {

std::vector<std::string> Seeds() {
  return {"STEP=12\nEPOCH=1\nRATE=310.5\nUNIT=images\nSECTION=data\n",
          "WAITS=57 all_reduce 4194304 float32 0\nLAST=56 all_reduce 0\nLAST=3 barrier 1\n",
          "WAITS=\n", ""};
}

bool Try(std::string_view bytes) {
  const ProgressMessage message = ParseProgress(bytes);
  Require(!message.step || *message.step >= 0, "a step is not negative");
  const std::string text = ToText(message);
  Require(ToText(ParseProgress(text)) == text, "what is written is read as the same");
  return true;
}

}  // namespace ddprun::fuzz
