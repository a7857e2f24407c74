// SPDX-License-Identifier: Apache-2.0
// The program `train`. The only place where an exception becomes a failure record, a sentence and
// an exit code.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "proto/failure_record.h"
#include "proto/worker_env.h"
#include "worker/command_line.h"
#include "worker/dataset.h"
#include "worker/progress_sender.h"
#include "worker/reporter.h"
#include "worker/trainer.h"
#include "worker/world.h"

namespace ddprun {
namespace {

constexpr int kSuccess = 0;
constexpr int kFailure = 1;
constexpr int kUsage = 2;

// The ranks of a node share its cores. Whoever sets OMP_NUM_THREADS (ddprun and torchrun do) has
// decided already.
void ShareCores(int local_world_size) {
  if (std::getenv("OMP_NUM_THREADS")) return;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  at::set_num_threads(std::max(1, cores / std::max(1, local_world_size)));
}

Reporter::Options ReporterOptions(const WorkerEnv& env) {
  const bool alone = env.agent_socket.empty();
  const bool terminal = alone ? isatty(STDOUT_FILENO) == 1 : env.console_is_terminal;
  return {.bar = env.rank == 0 && terminal, .erase_bar = alone};
}

void Train(const Config& config, const WorkerEnv& env,
           std::chrono::steady_clock::time_point start) {
  ShareCores(env.local_world_size);
  const BackendChoice backend = ParseBackend(config.backend);
  ProgressSender progress(env.notify_socket);
  ProgressMessage begun;
  begun.section = "init";
  progress.Say(begun);
  // Before joining: a rank whose files are missing says so at once, and the others are not kept
  // waiting for it.
  if (env.rank == 0) PrepareOutputDirectory(config.output_dir);
  const Dataset data =
      OpenDataset(config.dataset, {.directory = config.data_dir, .seed = config.seed});
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(config.timeout * 1000));
  const std::unique_ptr<World> world = World::Join(env, {.backend = backend, .timeout = timeout});
  Reporter reporter(ReporterOptions(env));
  {
    Trainer trainer(config, data, *world, reporter, progress, start);
    trainer.Run();
  }
  world->Shutdown();
}

// c10's messages go on for lines: where in LibTorch, and the frames that led there.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

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
    const auto parsed = ParseCommandLine(arguments);
    if (const auto* information = std::get_if<Information>(&parsed)) {
      std::fputs(information->text.c_str(), stdout);
      return kSuccess;
    }
    const auto env = FromProcessEnviron();
    if (!env.ok()) return Fail(error_file, std::string(env.status().message()), kFailure);
    Train(std::get<Config>(parsed), *env, start);
    return kSuccess;
  } catch (const UsageError& error) {
    return Fail(error_file, error.what(), kUsage);
  } catch (const std::invalid_argument& error) {
    return Fail(error_file, error.what(), kUsage);
  } catch (const c10::Error& error) {
    return Fail(error_file, FirstLine(error.what_without_backtrace()), kFailure);
  } catch (const std::exception& error) {
    return Fail(error_file, FirstLine(error.what()), kFailure);
  }
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  setenv("TORCH_SHOW_CPP_STACKTRACES", "0", /*overwrite=*/1);
  const int code = ddprun::Main({argv + 1, argv + argc});
  std::fflush(stdout);
  std::fflush(stderr);
  // LibTorch's static destructors take as long as a short run and have nothing to save.
  std::_Exit(code);
}
