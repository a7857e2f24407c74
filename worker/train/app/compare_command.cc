// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "proto/input_file.h"
#include "rendezvous/base/own_program.h"
#include "worker/library/files/atomic_file.h"
#include "worker/train/app/beside_train.h"
#include "worker/train/app/command_line.h"
#include "worker/train/app/commands.h"
#include "worker/train/app/comparison.h"
#include "worker/train/export/run_folder.h"
#include "worker/train/metrics/metrics_writer.h"
#include "worker/train/observers/summary.h"
#include "worker/train/training/results.h"

namespace ddprun {
namespace {

// For the output of a run.
int OpenLog(const std::string& path) {
  // To open a FIFO would wait for a reader, for ever.
  if (std::error_code error; std::filesystem::is_other(std::filesystem::status(path, error)))
    throw std::runtime_error(path + " cannot be written: it is not a regular file; remove it");
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) throw std::runtime_error(path + " cannot be written: " + std::strerror(errno));
  return file;
}

constexpr std::int64_t kStandardRanks = 2;
constexpr double kStandardLimit = 24 * 3600;  // seconds
constexpr double kLimitMax = 1e8;
constexpr int kUsageExitCode = 2;
constexpr char kLogFileName[] = "output.log";

struct Options {
  std::string json_file;
  double limit = kStandardLimit;  // seconds that one run may take
  std::vector<std::string> settings;
};

Options ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  CLI::App app(
      "Runs the same training three times, plain in one process, data-parallel, and as a pipeline, "
      "and prints a table of the three. Starts the ranks (--world-size, default 2) with the ddprun "
      "that is installed beside it.",
      "train compare");
  app.add_option("--json", options.json_file, "also write the figures to this file")
      ->type_name("FILE");
  app.add_option("--time-limit", options.limit, "maximum seconds for each of the runs")
      ->type_name("NUMBER [86400]")
      ->check(CLI::Range(0.001, kLimitMax));
  app.footer(
      "train compare RUN RUN [--json FILE]: two trainings that have ended (their --output-dir), "
      "with the settings that differ, figures, accuracy and loss by epoch, and the classes whose "
      "accuracies differ most.\n"
      "All other settings are those of `train` (see train --help); --batch-size is the batch of "
      "one data-parallel rank.");
  app.allow_extras();
  ParseWith(app, arguments);
  options.settings = app.remaining();
  return options;
}

std::vector<std::string> CommandOf(const ComparedRun& run) {
  std::vector<std::string> command;
  if (run.ranks > 1) {
    const std::string launcher = BesideTrain("ddprun");
    if (access(launcher.c_str(), X_OK) != 0) {
      throw std::runtime_error("train compare needs ddprun beside it to start ranks, and " +
                               launcher + " is not there; build or install it");
    }
    command = {launcher, "--standalone", "--nproc-per-node", std::to_string(run.ranks)};
  }
  command.push_back(OwnProgram());
  command.insert(command.end(), run.settings.begin(), run.settings.end());
  return command;
}

// The run's error: the last `train: ...` line of its log.
std::string LastWords(const std::filesystem::path& log) {
  constexpr std::string_view kMark = "train: ";
  std::ifstream file(log);
  std::string line;
  std::string words;
  while (std::getline(file, line)) {
    const auto place = line.find(kMark);
    if (place != std::string::npos) words = line.substr(place + kMark.size());
  }
  return words;
}

std::map<std::string, double> ReadSummary(const std::filesystem::path& path) {
  std::map<std::string, double> numbers;
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw std::runtime_error(path.string() + " cannot be read as JSON");
  for (const auto& [key, value] : json.items()) {
    if (value.is_number() && key != "world_size") numbers[key] = value.get<double>();
  }
  return numbers;
}

// A run that rejects its settings (a model that cannot be split) is a result too: the others stay
// comparable. Throws std::runtime_error for any other failure.
ComparedResult Execute(const ComparedRun& run, const std::filesystem::path& folder, double limit) {
  ComparedResult result{.name = run.name, .ranks = run.ranks};
  PrepareFolder("--output-dir", folder);
  const std::filesystem::path log = folder / kLogFileName;
  const std::filesystem::path summary = folder / kSummaryFileName;
  std::filesystem::remove(summary);  // of an earlier comparison
  ChildProcess child(CommandOf(run), OpenLog(log));
  if (!child.Wait(std::chrono::milliseconds(static_cast<std::int64_t>(limit * 1000)))) {
    throw std::runtime_error("the " + run.name + " run has not ended within " +
                             std::to_string(static_cast<std::int64_t>(limit)) +
                             " s; raise --time-limit, or see " + log.string());
  }
  const std::string words = LastWords(log);
  if (child.exit_code() == kUsageExitCode && !words.empty()) {
    result.error = words;
  } else if (child.exit_code() != 0) {
    throw std::runtime_error("the " + run.name + " run ended with " +
                             std::to_string(child.exit_code()) +
                             (words.empty() ? "" : " (" + words + ")") + "; see " + log.string());
  } else {
    result.numbers = ReadSummary(summary);
  }
  return result;
}

int RanksOf(const Config& config) {
  const std::int64_t ranks = config.world_size.value_or(kStandardRanks);
  constexpr std::int64_t kRanksMax = 1024;  // on one machine
  if (ranks < 2 || ranks > kRanksMax) {
    throw UsageError("train compare: --world-size must be from 2 to " + std::to_string(kRanksMax) +
                     ", but is " + std::to_string(ranks));
  }
  return static_cast<int>(ranks);
}

// summary.json and metrics.jsonl of the folder; the latter may be missing.
PastRun ReadPastRun(const std::string& folder) {
  const std::filesystem::path path(folder);
  constexpr std::size_t kSummaryBytesMax = 1u << 20;
  const std::string file = path / kSummaryFileName;
  const auto text = ReadRegularFile(file, kSummaryBytesMax);
  if (!text.ok())
    throw std::runtime_error(file + ": " + std::string(text.status().message()) +
                             "; give the --output-dir of a training that has ended");
  PastRun run{.name = folder,
              .summary = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false),
              .evaluations = {}};
  while (run.name.size() > 1 && run.name.ends_with('/')) run.name.pop_back();
  if (!run.summary.is_object())
    throw std::runtime_error(file + " is no summary of train; give the --output-dir of one");
  // To read a FIFO would wait for whatever writes there.
  std::error_code error;
  if (std::filesystem::is_regular_file(path / kMetricsFileName, error))
    run.evaluations = EvaluationsIn(ReadMetrics(path / kMetricsFileName));
  return run;
}

void ComparePastRuns(const std::vector<std::string>& arguments) {
  CLI::App app("Compares two trainings that have ended.", "train compare");
  std::vector<std::string> runs;
  std::string json_file;
  app.add_option("RUN", runs, "the --output-dir of a training")->required()->expected(2);
  app.add_option("--json", json_file, "also write the figures to this file")->type_name("FILE");
  ParseWith(app, arguments);
  if (!json_file.empty()) CheckOutputFile("--json", json_file);
  const PastRun a = ReadPastRun(runs[0]);
  const PastRun b = ReadPastRun(runs[1]);
  std::fputs(ToTables(a, b).c_str(), stdout);
  if (json_file.empty()) return;
  const std::string json = ToJson(a, b);
  WriteFile(UserPath(json_file), json);
}

}  // namespace

void RunCompare(const CommandContext& context) {
  // No setting of a training is an argument without a flag.
  if (!context.arguments.empty() && !context.arguments[0].starts_with('-'))
    return ComparePastRuns(context.arguments);
  const Options options = ParseOptions(context.arguments);
  const Config config = ParseCommandLine(options.settings);
  if (Environment().world_size > 1)
    throw UsageError("train compare starts its ranks by itself; run it without a launcher");
  if (!options.json_file.empty()) CheckOutputFile("--json", options.json_file);
  const auto runs = ComparedRuns(config, RanksOf(config));
  std::vector<ComparedResult> results;
  for (const ComparedRun& run : runs) {
    std::fprintf(stderr, "%s: %d %s ...\n", run.name.c_str(), run.ranks,
                 run.ranks == 1 ? "process" : "ranks");
    const std::filesystem::path folder = std::filesystem::path(config.output_dir) / run.name;
    results.push_back(Execute(run, folder, options.limit));
  }
  std::fputs(ToTable(results).c_str(), stdout);
  if (options.json_file.empty()) return;
  const std::string json = ToJson(results);
  WriteFile(UserPath(options.json_file), json);
}

}  // namespace ddprun
