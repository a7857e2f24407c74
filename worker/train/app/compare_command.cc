// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/library/files/atomic_file.h"
#include "worker/train/app/beside_train.h"
#include "worker/train/app/command_line.h"
#include "worker/train/app/commands.h"
#include "worker/train/app/comparison.h"
#include "worker/train/export/run_folder.h"
#include "worker/train/observers/summary.h"
#include "worker/train/training/results.h"

namespace ddprun {
namespace {

constexpr int kCannotExecute = 127;  // a shell's exit code for it

std::runtime_error Failed(const std::string& what) {
  return std::runtime_error(what + ": " + std::strerror(errno));
}

// In the child, between fork and exec: only calls that are safe there. (posix_spawn cannot bind a
// child to its parent's life.)
[[noreturn]] void BecomeProgram(char** arguments, int log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kCannotExecute);  // the parent ended before prctl()
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(arguments[0], arguments);
  _exit(kCannotExecute);
}

// Another program, which the kernel sends SIGTERM when this one ends for any reason.
class ChildProcess {
 public:
  // Writes the child's stdout and stderr to the file `log`, which is truncated. Throws
  // std::runtime_error.
  ChildProcess(const std::vector<std::string>& command, const std::string& log);
  // Ends the child if it still runs: SIGTERM, then after kGrace SIGKILL.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  static constexpr std::chrono::seconds kGrace{40};  // ddprun gives its workers 30
  // Between two looks for its end where the kernel has no pidfds (before Linux 5.3), or a container
  // forbids them.
  static constexpr std::chrono::milliseconds kLookInterval{50};

  // Waits for the child's end. False: `limit` has passed.
  bool Wait(std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    pollfd watched{.fd = pidfd_, .events = POLLIN, .revents = 0};
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) != pid_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      const auto longest = pidfd_ < 0 ? kLookInterval.count() : std::numeric_limits<int>::max();
      poll(&watched, 1, static_cast<int>(std::min<long long>(left.count(), longest)));
    }
    ended_ = true;
    exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return true;
  }

  // 128 + N if signal N killed the child. Valid after Wait() has returned true.
  int exit_code() const { return exit_code_; }

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int exit_code_ = -1;
  bool ended_ = false;
};

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::string& log) {
  // To open a FIFO would wait for a reader, for ever.
  if (std::error_code error; std::filesystem::is_other(std::filesystem::status(log, error)))
    throw std::runtime_error(log + " cannot be written: it is not a regular file; remove it");
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) throw Failed(log + " cannot be written");
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) BecomeProgram(arguments.data(), file, parent);
  close(file);
  if (pid_ < 0) throw Failed(command[0] + " cannot be started");
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0u));
}

ChildProcess::~ChildProcess() {
  if (!ended_) {
    kill(pid_, SIGTERM);
    if (!Wait(kGrace)) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  if (pidfd_ >= 0) close(pidfd_);
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
  command.push_back(std::filesystem::read_symlink("/proc/self/exe"));
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
  ChildProcess child(CommandOf(run), log);
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

}  // namespace

void RunCompare(const CommandContext& context) {
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
