// SPDX-License-Identifier: Apache-2.0
// A fuzz target: one parser of bytes that come from outside. Each *_fuzz.cc defines Seeds() and
// Try(). Built with g++ a target is a test that tries the seeds and a fixed number of mutations of
// them (replay.cc); with the preset "fuzz" it is a libFuzzer program (libfuzzer.cc).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::fuzz {

// Valid input, from which mutation starts.
std::vector<std::string> Seeds();

// Parses `bytes`; whether the parser accepts them, as it must each seed. Aborts if a property of
// the parser does not hold.
bool Try(std::string_view bytes);

inline void Require(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", property);
  std::abort();
}

}  // namespace ddprun::fuzz
