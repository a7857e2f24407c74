// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "worker/library/files/atomic_file.h"
#include "worker/library/files/state_dict.h"
#include "worker/train/app/command_line.h"
#include "worker/train/app/commands.h"
#include "worker/train/app/setup.h"
#include "worker/train/export/hugging_face.h"
#include "worker/train/export/model_description.h"
#include "worker/train/export/model_file.h"
#include "worker/train/export/torchscript.h"

namespace ddprun {
namespace {

void TellOnStderr(const std::string& line) { std::fprintf(stderr, "train: %s\n", line.c_str()); }

// Returns the Python expression that opens the result.
std::string Write(const std::string& format, ImageModel& model, const Config& config,
                  const ModelInput& input, const std::string& output) {
  if (format == "hf") return SaveForTransformers(model, config, input, output);
  const bool script = format == "torchscript";
  if (script)
    SaveTorchScript(model, at::zeros({2, input.channels, input.height, input.width}), output);
  else
    SaveStateDict(model, UserPath(output));
  if (std::filesystem::is_regular_file(output)) WriteDescription(output, config, input);
  return (script ? "torch.jit.load(\"" : "torch.load(\"") + output + "\")";
}

// The images that the model was trained on: from the file or its description, else the data set.
ModelInput FindInput(const ModelFile& file, const Config& config) {
  if (file.input) return *file.input;
  try {
    return InputOf(OpenDataset(config));
  } catch (const DataError& error) {
    throw std::runtime_error(file.path + " does not say which images it is for, and there is no " +
                             file.path + kDescriptionSuffix + " beside it; --dataset " +
                             config.dataset + " cannot say it: " + error.what());
  }
}

}  // namespace

void RunExport(const CommandContext& context) {
  CLI::App app(
      "Writes a trained model for other programs.\n"
      "train export run --format hf --output my-model",
      "train export");
  ModelArguments arguments(app, {});
  std::string format, output;
  app.add_option("--format", format,
                 "pth: a state dict for torch.load; hf: a folder for transformers' "
                 "from_pretrained; torchscript: a program for torch.jit.load. The channels, mean "
                 "and std of its images are written to PATH.json, with hf to "
                 "preprocessor_config.json")
      ->required()
      ->check(CLI::IsMember({"pth", "hf", "torchscript"}));
  app.add_option("--output", output, "file to write; with hf a folder")
      ->required()
      ->type_name("PATH");
  ParseWith(app, context.arguments);
  if (format != "hf") CheckOutputFile("--output", output);
  arguments.Open(TellOnStderr);
  const Config& config = arguments.config();
  if (format == "hf") RequirePythonClass(config.model);
  const ModelInput input = FindInput(arguments.file(), config);
  const auto model = MakeModelOf(arguments.file(), config, input);
  const std::string opening = Write(format, *model, config, input, output);
  std::printf("%s: %s is in %s; in Python: %s\n", format.c_str(),
              Describe(arguments.file()).c_str(), output.c_str(), opening.c_str());
}

}  // namespace ddprun
