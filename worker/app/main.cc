// SPDX-License-Identifier: Apache-2.0
// The program `train`. The only place that turns an exception into a failure record, a sentence
// and an exit code.
#include <chrono>
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

int Fail(const std::string& error_file, const std::string& sentence, int code) {
  std::fprintf(stderr, "train: %s\n", sentence.c_str());
  if (error_file.empty()) return code;
  const absl::Status written =
      WriteFailureRecord(error_file, {.message = sentence, .traceback = ""},
                         static_cast<long long>(std::time(nullptr)));
  if (!written.ok()) std::fprintf(stderr, "train: %s\n", std::string(written.message()).c_str());
  return code;
}

int Main(const std::vector<std::string>& arguments) {
  const auto start = std::chrono::steady_clock::now();
  const char* error_variable = std::getenv("TORCHELASTIC_ERROR_FILE");
  const std::string error_file = error_variable ? error_variable : "";
  try {
    const Invocation invocation = Invoke(arguments, start);
    invocation.command->run(invocation.context);
    return kSuccess;
  } catch (const Information& information) {
    std::fputs(information.text.c_str(), stdout);
    return kSuccess;
  } catch (const UsageError& error) {
    return Fail(error_file, error.what(), kUsage);
  } catch (const std::invalid_argument& error) {
    return Fail(error_file, error.what(), kUsage);
  } catch (const Stopped& stopped) {
    return Fail(error_file, stopped.what(), 128 + stopped.signal);
  } catch (const std::exception& error) {
    return Fail(error_file, FirstLine(error), kFailure);
  }
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  setenv("TORCH_SHOW_CPP_STACKTRACES", "0", /*overwrite=*/1);
  ddprun::KeepFreedMemory();
  const int code = ddprun::Main({argv + 1, argv + argc});
  std::fflush(stdout);
  std::fflush(stderr);
  // Skips LibTorch's static destructors: they take as long as a short run and save nothing.
  std::_Exit(code);
}
