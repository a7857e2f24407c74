// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/fuzz.h"

// The seeds, as the first folder of the corpus: libFuzzer keeps what it finds there.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static std::string folder = std::string((*argv)[0]) + ".corpus";
  static std::vector<char*> arguments(*argv, *argv + *argc);
  for (int i = 1; i < *argc; ++i) {
    if ((*argv)[i][0] != '-') return 0;  // a corpus or an input was named
  }
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& seed : ddprun::fuzz::Seeds()) {
    std::ofstream(folder + "/seed" + std::to_string(number++), std::ios::binary) << seed;
  }
  arguments.push_back(folder.data());
  *argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  *argv = arguments.data();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  (void)ddprun::fuzz::Try({reinterpret_cast<const char*>(data), size});
  return 0;
}
