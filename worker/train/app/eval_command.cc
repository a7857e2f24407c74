// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "ddprun/detail/checksum.h"
#include "ddprun/world.h"
#include "worker/library/base/text.h"
#include "worker/library/base/unique_tensors.h"
#include "worker/library/checkpoint/resume.h"
#include "worker/train/app/command_line.h"
#include "worker/train/app/commands.h"
#include "worker/train/app/launch.h"
#include "worker/train/app/setup.h"
#include "worker/train/evaluation/evaluate.h"
#include "worker/train/export/model_file.h"
#include "worker/train/parallel/data_parallel.h"
#include "worker/train/parallel/precision.h"

namespace ddprun {
namespace {

std::string SizesOf(const ModelInput& input) {
  return std::to_string(input.channels) + "x" + std::to_string(input.height) + "x" +
         std::to_string(input.width) + " and " + std::to_string(input.classes) + " classes";
}

// A checkpoint states its training data; another data set must have images of the same size, as
// many classes, and the same ones in the same order where both have names.
void CheckFits(const ModelFile& file, const ModelInput& data, const std::string& dataset) {
  if (!file.input) return;
  const std::string choose = "; choose the data set it was trained on";
  if (SizesOf(*file.input) != SizesOf(data))
    throw UsageError(file.path + " is for images of " + SizesOf(*file.input) + ", but --dataset " +
                     dataset + " has " + SizesOf(data) + choose);
  const std::vector<std::string>& names = file.input->class_names;
  if (const auto label = FirstOtherClass(names, data.class_names))
    throw UsageError(file.path + " is for other classes: number " + std::to_string(*label) +
                     " is '" + names[*label] + "' there, but '" + data.class_names[*label] +
                     "' in --dataset " + dataset + choose + ", or name its folders alike");
}

// A model that was trained in fp16 on a GPU is evaluated in fp32 on a CPU, unless --amp asks for
// fp16.
std::optional<at::ScalarType> PrecisionOf(const ModelArguments& arguments, at::Device device) {
  const Amp amp = arguments.config().amp;
  const bool asked_for = arguments.Given().amp == amp;
  const bool is_half = amp == Amp::kFp16 || amp == Amp::kFp16Pure;
  if (is_half && !device.is_cuda() && !asked_for) return std::nullopt;
  return AutocastType(amp, device);
}

void Evaluate(const ModelArguments& arguments, const WorkerEnv& env) {
  const Config& config = arguments.config();
  const Dataset data = OpenDataset(config);
  const ModelInput input = InputOf(data);
  CheckFits(arguments.file(), input, config.dataset);
  const auto model = MakeModelOf(arguments.file(), config, input);
  if (config.channels_last) UseChannelsLast(*model);
  World::Options options = WorldOptions(config);
  options.facts = FactsOf(config, data);
  // Each rank reads the model file itself, and a host may have an older file under that name.
  options.facts.emplace_back("the checksum of the model", Hex(Checksum(UniqueState(*model))));
  const auto world = World::Join(env, options);
  model->to(world->device());
  Console console(ConsoleOptions(env));
  if (world->rank() == 0) {
    for (const std::string& note : data.notes) console.Line(note);
    if (!world->device_note().empty()) console.Line(world->device_note());
  }
  {
    DataParallel strategy(*world, *model, {.autocast = PrecisionOf(arguments, world->device())});
    strategy.Evaluate();
    const auto feed = MakeTestFeed(config, data, *world, strategy.shard(), strategy.image_type());
    const Evaluation result =
        ddprun::Evaluate(config, *world, strategy, *feed, data.classes).value();
    if (world->rank() == 0) {
      const std::string left_out = LeftOut(result, *feed);
      if (!left_out.empty()) console.Line(left_out);
      console.Line(ToTable({{"model", Describe(arguments.file())},
                            {"data set", config.dataset},
                            {"test accuracy", Fixed(100 * result.accuracy(), 2) + " % (" +
                                                  std::to_string(result.correct()) + " of " +
                                                  std::to_string(result.images) + " images)"},
                            {"test loss", Fixed(result.loss, 4)},
                            {"world size", std::to_string(world->size())}}));
    }
  }
  world->Shutdown();
}

}  // namespace

void RunEval(const CommandContext& context) {
  CLI::App app(
      "Measures the accuracy and loss of a trained model on the test images, in one process or "
      "several ranks.\n"
      "ddprun --standalone --nproc-per-node 2 train eval run",
      "train eval");
  ModelArguments arguments(
      app, {"loader-threads", "device", "backend", "timeout", "world-size", "env-file"});
  ParseWith(app, context.arguments);
  std::vector<std::string> command = {"eval"};
  command.insert(command.end(), context.arguments.begin(), context.arguments.end());
  const WorkerEnv env = Launch(arguments.Given(), command);
  PrepareRank(arguments.Given(), env);
  arguments.Open([&env](const std::string& line) {
    if (env.rank == 0) std::fprintf(stderr, "train: %s\n", line.c_str());
  });
  Evaluate(arguments, env);
}

}  // namespace ddprun
