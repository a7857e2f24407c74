// SPDX-License-Identifier: Apache-2.0
// The program `train`. The only place that turns an exception into a failure record, a sentence
// and an exit code.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "proto/failure_record.h"
#include "worker/app/command_line.h"
#include "worker/app/commands.h"
#include "worker/base/first_line.h"
#include "worker/checkpoint/stop_signal.h"
#include "worker/config/config.h"
#include "worker/memory/keep_freed_memory.h"

namespace ddprun {
namespace {

constexpr int kSuccess = 0;
constexpr int kFailure = 1;
constexpr int kUsage = 2;

int Fail(const std::string& sentence, int code) {
  std::fprintf(stderr, "train: %s\n", sentence.c_str());
  const char* error_file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (error_file == nullptr || *error_file == '\0') return code;
  const absl::Status written =
      WriteFailureRecord(error_file, {.message = sentence, .traceback = ""},
                         static_cast<long long>(std::time(nullptr)));
  if (!written.ok()) std::fprintf(stderr, "train: %s\n", std::string(written.message()).c_str());
  return code;
}

// Tells what the command has thrown. The program's exit code.
int Report(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Information& information) {
    std::fputs(information.text.c_str(), stdout);
    return kSuccess;
  } catch (const UsageError& usage) {
    return Fail(usage.what(), kUsage);
  } catch (const std::invalid_argument& usage) {
    return Fail(usage.what(), kUsage);
  } catch (const Stopped& stopped) {
    return Fail(stopped.what(), 128 + stopped.signal);
  } catch (const std::exception& failure) {
    return Fail(FirstLine(failure), kFailure);
  }
}

// Skips LibTorch's static destructors: they take as long as a short run and save nothing.
[[noreturn]] void End(int code) {
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(code);
}

void EndAtOnce(std::exception_ptr error) { End(Report(error)); }

int Main(const std::vector<std::string>& arguments) {
  const auto start = std::chrono::steady_clock::now();
  try {
    Invocation invocation = Invoke(arguments, start);
    invocation.context.end_at_once = EndAtOnce;
    invocation.command->run(invocation.context);
    return kSuccess;
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
  ddprun::End(ddprun::Main({argv + 1, argv + argc}));
}
