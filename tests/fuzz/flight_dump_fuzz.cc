// SPDX-License-Identifier: Apache-2.0
// A dump of PyTorch's flight recorder, which a worker writes.
#include "launcher/collectives/flight_dump.h"

#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {

std::vector<std::string> Seeds() {
  using namespace std::string_literals;
  const auto text = [](const std::string& words) {
    return "X"s + static_cast<char>(words.size()) + "\0\0\0"s + words;
  };
  const auto entry = [&](const std::string& state, const std::string& retired) {
    return "}(" + text("process_group") + text("0") + text("default_pg") + "\x86q\x01" +
           text("collective_seq_id") + "K\x04" + text("profiling_name") + text("nccl:all_reduce") +
           text("time_created_ns") + "\x8a\x02\x01\x01" + text("input_sizes") +
           "](](K\x03M\0\x01"s + "ee" + text("input_dtypes") + "](" + text("Float") + "e" +
           text("state") + text(state) + text("retired") + retired + text("is_p2p") + "\x89u";
  };
  const std::string begin =
      "\x80\x02}(" + text("pg_config") + "}(" + text("1") + "}u" + text("entries");
  return {begin + "](" + entry("completed", "\x88") + entry("started", "\x89") + "eu.",
          begin + "](" + entry("scheduled", "\x89") + "eu.", begin + "]u."};
}

bool Try(std::string_view bytes) { return ParseFlightDump(bytes, 0).ok(); }

}  // namespace ddprun::fuzz
