// SPDX-License-Identifier: Apache-2.0
#include "worker/train/config/setting_names.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "worker/train/config/config.h"

namespace ddprun {
namespace {

// Longer names are not taken for misspellings.
constexpr std::size_t kNameLengthMax = 64;
// A shorter text is not taken for a prefix of a name.
constexpr std::size_t kBeginningMin = 3;

// How many letters may differ.
std::size_t DifferenceMax(std::size_t letters) { return letters <= 3 ? 1 : letters <= 8 ? 2 : 3; }

// Names in other training programs: PyTorch's examples, torchvision, timm, transformers.
const std::map<std::string, std::string>& OtherNames() {
  static const std::map<std::string, std::string> names = {
      {"learningrate", "lr"},
      {"baselr", "lr"},
      {"maxlr", "lr"},
      {"batch", "batch-size"},
      {"bs", "batch-size"},
      {"perdevicetrainbatchsize", "batch-size"},
      {"perdeviceevalbatchsize", "eval-batch-size"},
      {"testbatchsize", "eval-batch-size"},
      {"numepochs", "epochs"},
      {"numtrainepochs", "epochs"},
      {"totalepochs", "epochs"},
      {"nepochs", "epochs"},
      {"numsteps", "max-steps"},
      {"totalsteps", "max-steps"},
      {"steps", "max-steps"},
      {"arch", "model"},
      {"modelname", "model"},
      {"net", "model"},
      {"network", "model"},
      {"checkpoint", "checkpoint-dir"},
      {"ckptdir", "checkpoint-dir"},
      {"saveevery", "checkpoint-every"},
      {"savesteps", "checkpoint-every"},
      {"savetotallimit", "checkpoint-keep"},
      {"resumefrom", "resume"},
      {"resumefromcheckpoint", "resume"},
      {"pretrained", "init-from"},
      {"weights", "init-from"},
      {"data", "data-dir"},
      {"datapath", "data-dir"},
      {"dataroot", "data-dir"},
      {"root", "data-dir"},
      {"datasetname", "dataset"},
      {"output", "output-dir"},
      {"outdir", "output-dir"},
      {"savedir", "output-dir"},
      {"logdir", "output-dir"},
      {"workers", "loader-threads"},
      {"numworkers", "loader-threads"},
      {"dataloadernumworkers", "loader-threads"},
      {"optim", "optimizer"},
      {"opt", "optimizer"},
      {"scheduler", "schedule"},
      {"lrscheduler", "schedule"},
      {"lrschedulertype", "schedule"},
      {"lrstepsize", "step-epochs"},
      {"stepsize", "step-epochs"},
      {"gamma", "step-gamma"},
      {"lrgamma", "step-gamma"},
      {"warmup", "warmup-epochs"},
      {"lrwarmupepochs", "warmup-epochs"},
      {"numwarmupsteps", "warmup-steps"},
      {"wd", "weight-decay"},
      {"adambeta1", "beta1"},
      {"adambeta2", "beta2"},
      {"eps", "adam-eps"},
      {"epsilon", "adam-eps"},
      {"adamepsilon", "adam-eps"},
      {"smoothing", "label-smoothing"},
      {"gradientaccumulationsteps", "accumulate"},
      {"accumulationsteps", "accumulate"},
      {"gradaccum", "accumulate"},
      {"gradclip", "clip-norm"},
      {"clipgrad", "clip-norm"},
      {"clipgradnorm", "clip-norm"},
      {"maxgradnorm", "clip-norm"},
      {"ema", "ema-decay"},
      {"modelemadecay", "ema-decay"},
      {"fp16", "amp"},
      {"bf16", "amp"},
      {"mixedprecision", "amp"},
      {"randomseed", "seed"},
      {"syncbn", "sync-batch-norm"},
      {"imagesize", "input-size"},
      {"imgsize", "input-size"},
      {"inputdim", "input-size"},
      {"classes", "num-classes"},
      {"nclasses", "num-classes"},
      {"numsamples", "samples"},
      {"datasetsize", "samples"},
      {"numstages", "pipeline"},
      {"pipelinestages", "pipeline"},
      {"nummicrobatches", "micro-batches"},
      {"logginginterval", "log-every"},
      {"loggingsteps", "log-every"},
      {"loginterval", "log-every"},
      {"printfreq", "log-every"},
      {"evalinterval", "eval-every"},
      {"evalsteps", "eval-every"},
      {"distbackend", "backend"},
  };
  return names;
}

// Lower case, without the separators between words.
std::string Letters(const std::string& name) {
  std::string letters;
  for (const unsigned char character : name) {
    if (character != '-' && character != '_')
      letters.push_back(static_cast<char>(std::tolower(character)));
  }
  return letters;
}

// How many letters must be changed, added or left out; two that are swapped count as two.
std::size_t Difference(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string NearestName(const std::string& name, const std::vector<std::string>& known) {
  const std::string letters = Letters(name);
  if (letters.empty() || letters.size() > kNameLengthMax) return "";
  std::string nearest;
  std::size_t least = DifferenceMax(letters.size()) + 1;
  const auto consider = [&](std::size_t difference, const std::string& key) {
    if (difference >= least) return;
    least = difference;
    nearest = key;
  };
  const auto is_known = [&](const std::string& key) {
    return std::find(known.begin(), known.end(), key) != known.end();
  };
  const auto same = OtherNames().find(letters);
  if (same != OtherNames().end() && is_known(same->second)) return same->second;
  for (const std::string& key : known) {
    const std::string own = Letters(key);
    const bool begins = letters.size() >= kBeginningMin && own.starts_with(letters);
    consider(begins ? 1 : Difference(letters, own), key);
  }
  for (const auto& [other, key] : OtherNames()) {
    if (is_known(key)) consider(Difference(letters, other), key);
  }
  return nearest;
}

std::string DidYouMean(const std::string& name, const std::vector<std::string>& known,
                       const std::string& prefix) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : "; did you mean " + prefix + nearest + "?";
}

std::vector<std::string> SettingKeys() {
  std::vector<std::string> keys;
  for (const Setting& setting : Settings()) keys.push_back(setting.key);
  return keys;
}

}  // namespace ddprun
