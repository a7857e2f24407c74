// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer: NAME [MUTATIONS [SEED]]. A failing input is left in the
// working directory as NAME.input, which libFuzzer's program takes as an argument.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>

#include "tests/fuzz/fuzz.h"

namespace {

std::string input;
std::string input_path;

// The process is about to die: async-signal safety does not matter any more.
void KeepInput(int signal) {
  std::ofstream(input_path, std::ios::binary) << input;
  std::fprintf(stderr, "the input is in %s\n", input_path.c_str());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

using Random = std::mt19937_64;

std::size_t Below(Random& random, std::size_t limit) { return random() % limit; }

// Few changes each: most of the input stays valid, so that the parser's later stages are reached.
void Mutate(Random& random, const std::vector<std::string>& seeds, std::string& bytes) {
  static constexpr char kInteresting[] = {'\0', '\1', '\x7f', '\x80', '\xff', '\n', ',', ':'};
  for (std::size_t changes = 1 + Below(random, 4); changes > 0; --changes) {
    const std::size_t at = bytes.empty() ? 0 : Below(random, bytes.size());
    switch (Below(random, 6)) {
      case 0:  // flip a bit
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(random, 8)));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = kInteresting[Below(random, std::size(kInteresting))];
        break;
      case 2:
        bytes.insert(at, 1 + Below(random, 8), static_cast<char>(random()));
        break;
      case 3:
        bytes.erase(at, 1 + Below(random, 16));
        break;
      case 4:  // repeat a part
        bytes.insert(at, bytes.substr(at, 1 + Below(random, 64)));
        break;
      case 5: {  // go on as another seed does
        const std::string& other = seeds[Below(random, seeds.size())];
        bytes.resize(at);
        if (!other.empty()) bytes += other.substr(Below(random, other.size()));
        break;
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const long mutations = argc > 1 ? std::atol(argv[1]) : 100'000;
  Random random(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  input_path = std::string(basename(argv[0])) + ".input";
  std::signal(SIGABRT, KeepInput);
  std::signal(SIGSEGV, KeepInput);
  const std::vector<std::string> seeds = ddprun::fuzz::Seeds();
  for (const std::string& seed : seeds) {
    input = seed;
    ddprun::fuzz::Require(ddprun::fuzz::Try(input), "each seed is accepted");
  }
  for (long i = 0; i < mutations; ++i) {
    input = seeds[Below(random, seeds.size())];
    Mutate(random, seeds, input);
    (void)ddprun::fuzz::Try(input);
  }
  std::printf("%zu seeds and %ld mutations\n", seeds.size(), mutations);
}
