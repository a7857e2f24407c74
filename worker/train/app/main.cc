// SPDX-License-Identifier: Apache-2.0
// The program `train`.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "ddprun/main.h"
#include "worker/library/base/keep_freed_memory.h"
#include "worker/train/app/command_line.h"
#include "worker/train/app/commands.h"
#include "worker/train/config/config.h"
#include "worker/train/metrics/console.h"

namespace ddprun {
namespace {

constexpr char kProgram[] = "train";

// Tells what the command has thrown. The program's exit code.
int Report(const std::exception_ptr& error) {
  EraseBar();
  try {
    std::rethrow_exception(error);
  } catch (const Information& information) {
    std::fputs(information.text.c_str(), stdout);
    return kExitSuccess;
  } catch (const UsageError& usage) {
    return ReportFailure(kProgram, usage.what(), kExitUsage);
  } catch (...) {
    return ReportFailure(kProgram, std::current_exception());
  }
}

// Skips LibTorch's static destructors: they take as long as a short run and save nothing.
[[noreturn]] void End(int code) {
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(code);
}

void EndAtOnce(std::exception_ptr error) { End(Report(error)); }

int RunCommand(const std::vector<std::string>& arguments) {
  const auto start = std::chrono::steady_clock::now();
  try {
    Invocation invocation = Invoke(arguments, start);
    invocation.context.end_at_once = EndAtOnce;
    invocation.command->run(invocation.context);
    return kExitSuccess;
  } catch (...) {
    return Report(std::current_exception());
  }
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  setenv("TORCH_SHOW_CPP_STACKTRACES", "0", /*overwrite=*/1);
  // A file that grows beyond RLIMIT_FSIZE is then an error of write(2), as on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  ddprun::KeepFreedMemory();
  ddprun::End(ddprun::RunCommand({argv + 1, argv + argc}));
}
