// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "worker/app/command_line.h"
#include "worker/app/commands.h"
#include "worker/app/launch.h"
#include "worker/app/setup.h"
#include "worker/checkpoint/folder_lock.h"
#include "worker/checkpoint/stop_signal.h"
#include "worker/data/dataset.h"
#include "worker/distributed/world.h"
#include "worker/kernels/kernels.h"
#include "worker/metrics/console.h"
#include "worker/parallel/precision.h"
#include "worker/progress/flight_record.h"
#include "worker/progress/progress_sender.h"
#include "worker/progress/stall_reporter.h"
#include "worker/training/results.h"
#include "worker/training/trainer.h"

namespace ddprun {
namespace {

using FolderLocks = std::vector<std::unique_ptr<FolderLock>>;

// Creates the folders that rank 0 writes to, and locks them against other trainings.
FolderLocks TakeFolders(const Config& config, const WorkerEnv& env) {
  PrepareFolder("--output-dir", config.output_dir);
  PrepareResults(config.output_dir);
  std::vector<std::string> folders = {config.output_dir};
  if (SavesCheckpoints(config)) {
    PrepareFolder("--checkpoint-dir", CheckpointFolder(config));
    std::error_code error;
    if (!std::filesystem::equivalent(config.output_dir, CheckpointFolder(config), error))
      folders.push_back(CheckpointFolder(config));
  }
  FolderLocks locks;
  for (const std::string& folder : folders) {
    locks.push_back(std::make_unique<FolderLock>(
        folder, FolderLock::Options{.run = env.run_id, .restarted = Restarted(env)},
        [](const std::string& line) { std::fprintf(stderr, "train: %s\n", line.c_str()); }));
  }
  return locks;
}

void Train(const Config& config, const WorkerEnv& env, const CommandContext& context) {
  PrepareRank(config, env);
  if (config.deterministic)
    UseDeterministicAlgorithms();
  else
    UseFastestKernels();
  UseFusedKernels(config.fused_kernels);
  World::Options options = WorldOptions(config);
  options.step_graphs = config.cuda_graph;
  ProgressSender progress(env.notify_socket);
  ProgressMessage begun;
  begun.section = "init";
  progress.Send(begun);
  // Before joining: a rank whose files are missing fails at once, and the others do not wait for
  // it.
  const FolderLocks locks = env.rank == 0 ? TakeFolders(config, env) : FolderLocks{};
  const Dataset data = OpenDataset(config);
  options.facts = FactsOf(config, data);
  const std::unique_ptr<World> world = World::Join(env, options);
  // With NCCL the communicator is created in the background from here on, while the model is made.
  Console console(ConsoleOptions(env));
  const bool nccl = world->backend_name() == "nccl";
  // Up to here a signal ends this rank at once, because there is nothing to save. From here on it
  // is recorded, until all ranks are done.
  std::optional<StopSignal> signals;
  if (SavesCheckpoints(config)) signals.emplace();
  GraphSteps graph_steps;
  StallReporter stalls(progress, [nccl, &graph_steps] { return PlaceNow(nccl, graph_steps); });
  auto trainer = std::make_unique<Trainer>(config, data, *world, console, progress, graph_steps,
                                           context.program_start);
  std::optional<Stopped> stopped;
  try {
    trainer->Run();
  } catch (const Stopped& by_signal) {
    stopped = by_signal;
  } catch (const std::exception&) {
    stalls.Stop();
    if (world->device().is_cuda()) {
      // What is destroyed would wait for a device that hangs.
      trainer->AwaitSave();
      context.end_at_once(std::current_exception());
    }
    throw;
  }
  // Destroying the trainer aborts its collectives, which would look completed to the reporter.
  stalls.Stop();
  // NCCL's communicators cannot be ended before CUDA graphs that use them.
  trainer.reset();
  // No rank leaves while another is still waiting for it.
  world->Shutdown();
  if (stopped) throw Stopped(*stopped);
}

}  // namespace

void RunTrain(const CommandContext& context) {
  const Config config = ParseCommandLine(context.arguments);
  Train(config, Launch(config, context.arguments), context);
}

}  // namespace ddprun
