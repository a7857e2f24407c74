// SPDX-License-Identifier: Apache-2.0
// ddprun-simulation: plays seeds, or scenarios from files, and says what does not hold.
//
//   ddprun-simulation --seeds 100000 [--first-seed 1] [--threads 2]
//   ddprun-simulation --seed 4711          one, with its scenario and what happened
//   ddprun-simulation FILE...              scenarios
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/sim_world.h"

namespace ddprun {
namespace {

constexpr std::size_t kTraceLines = 60;

struct Options {
  std::uint64_t seeds = 0;
  std::uint64_t first_seed = 1;
  std::optional<std::uint64_t> seed;
  unsigned threads = 2;
  std::vector<std::string> files;
};

// Again, with a trace.
void Show(const std::string& name, const std::vector<ScenarioLine>& plan) {
  SimWorld world(/*trace=*/true);
  const absl::Status status = world.Play(plan);
  std::fprintf(stderr, "%s: %s\n\nthe last that happened:\n%s\nthe scenario that replays it:\n%s\n",
               name.c_str(), status.ok() ? "all holds" : std::string(status.message()).c_str(),
               world.Trace(kTraceLines).c_str(), ToText(plan).c_str());
}

int PlayFile(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) {
    std::fprintf(stderr, "%s cannot be read\n", file.c_str());
    return 2;
  }
  const auto lines = ParseScenario(file, text.str());
  if (!lines.ok()) {
    std::fprintf(stderr, "%s\n", std::string(lines.status().message()).c_str());
    return 2;
  }
  SimWorld world(/*trace=*/false);
  const absl::Status status = world.Play(*lines);
  if (status.ok()) return 0;
  if (absl::IsInvalidArgument(status)) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 2;
  }
  Show(file, *lines);
  return 1;
}

int PlaySeeds(const Options& options) {
  const auto began = std::chrono::steady_clock::now();
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> steps{0};
  std::mutex mutex;
  std::optional<std::uint64_t> failed;  // the lowest
  std::chrono::duration<double> simulated{0};
  const auto play = [&] {
    std::chrono::duration<double> mine{0};
    while (true) {
      const std::uint64_t index = next++;
      if (index >= options.seeds) break;
      const std::uint64_t seed = options.first_seed + index;
      SimWorld world(/*trace=*/false);
      const absl::Status status = world.Play(PlanOf(seed));
      mine += world.simulated();
      steps += world.steps();
      if (status.ok()) continue;
      const std::lock_guard<std::mutex> lock(mutex);
      if (!failed || seed < *failed) failed = seed;
      next = options.seeds;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    simulated += mine;
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < options.threads; ++i) threads.emplace_back(play);
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> real = std::chrono::steady_clock::now() - began;
  if (failed) {
    Show(absl::StrCat("seed ", *failed), PlanOf(*failed));
    return 1;
  }
  std::printf(
      "%llu seeds hold: %.0f s simulated in %.2f s, %.0f times real time; %llu steps of the "
      "service\n",
      static_cast<unsigned long long>(options.seeds), simulated.count(), real.count(),
      simulated.count() / real.count(), static_cast<unsigned long long>(steps.load()));
  return 0;
}

std::optional<Options> Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (!absl::StartsWith(argument, "--")) {
      options.files.push_back(argument);
      continue;
    }
    std::uint64_t number = 0;
    if (i + 1 >= argc || !absl::SimpleAtoi(argv[++i], &number)) return std::nullopt;
    if (argument == "--seeds") {
      options.seeds = number;
    } else if (argument == "--first-seed") {
      options.first_seed = number;
    } else if (argument == "--seed") {
      options.seed = number;
    } else if (argument == "--threads" && number > 0) {
      options.threads = static_cast<unsigned>(number);
    } else {
      return std::nullopt;
    }
  }
  if (options.seeds == 0 && !options.seed && options.files.empty()) return std::nullopt;
  return options;
}

int Main(int argc, char** argv) {
  const std::optional<Options> options = Parse(argc, argv);
  if (!options) {
    std::fprintf(
        stderr,
        "usage: ddprun-simulation --seeds N [--first-seed S] [--threads T] | --seed S | FILE...\n");
    return 2;
  }
  if (options->seed) {
    Show(absl::StrCat("seed ", *options->seed), PlanOf(*options->seed));
    return 0;
  }
  int result = 0;
  for (const std::string& file : options->files) result = std::max(result, PlayFile(file));
  return options->seeds > 0 ? std::max(result, PlaySeeds(*options)) : result;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) { return ddprun::Main(argc, argv); }
