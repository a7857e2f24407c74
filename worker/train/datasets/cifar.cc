// SPDX-License-Identifier: Apache-2.0
#include "worker/train/datasets/cifar.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "worker/train/data/unpacked_file.h"
#include "worker/train/datasets/cifar_pickle.h"

namespace ddprun {
namespace {

// Images of both archives.
constexpr std::int64_t kArchiveTrain = 50'000;
constexpr std::int64_t kArchiveTest = 10'000;
constexpr std::size_t kNameLinesMax = 1000;

// A container image has no clone of the repository: its entry point sets the command to run.
std::string NextMove(const CifarFormat& format) {
  const char* const fetch = std::getenv("DDPRUN_FETCH_DATA");
  return std::string("run ") + (fetch == nullptr ? "deploy/fetch-data.sh" : fetch) + " --dataset " +
         format.dataset + ", or pass --data-dir";
}

// A file that ends between two records is found by its number of them: all files of a training set
// have as many.
void CheckEqualLengths(const std::vector<std::filesystem::path>& paths,
                       const std::vector<LabelledImages>& parts, const CifarFormat& format) {
  const auto longest = std::max_element(
      parts.begin(), parts.end(),
      [](const auto& a, const auto& b) { return a.labels.size(0) < b.labels.size(0); });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].labels.size(0) == longest->labels.size(0)) continue;
    const auto& whole = paths[static_cast<std::size_t>(longest - parts.begin())];
    throw DataError(paths[i].string() + " has " + std::to_string(parts[i].labels.size(0)) +
                    " images, but " + whole.filename().string() + " has " +
                    std::to_string(longest->labels.size(0)) + ": the file is cut off; " +
                    NextMove(format));
  }
}

// A file that has no other beside it: where one set is as long as the archive's, so must the other
// be. (Both may be shorter: somebody's own choice.)
void CheckArchive(const std::filesystem::path& path, const SampleSet& set, std::int64_t whole,
                  const CifarFormat& format, bool other_is_whole) {
  if (!other_is_whole || set.size() >= whole) return;
  throw DataError(path.string() + " has " + std::to_string(set.size()) + " images, but " +
                  format.name + "'s has " + std::to_string(whole) + ": the file is cut off; " +
                  NextMove(format));
}

// One of the two data sets, in its binary version or as torchvision has it.
struct Version {
  const CifarFormat& format;
  const char* archive;
  const char* folder;                    // as the archive unpacks
  const char* ending;                    // of the files' names
  const char* pickled_labels = nullptr;  // the labels' key; null: not pickled

  LabelledImages Map(const std::string& path) const {
    if (pickled_labels == nullptr) return MapCifarFile(path, format);
    LabelledImages part = MapCifarPickle(path, pickled_labels, NextMove(format));
    CheckLabels(part, format.classes, path);
    return part;
  }
};

std::shared_ptr<const SampleSet> MapFiles(const std::vector<std::filesystem::path>& paths,
                                          const Version& version, const Dataset& set) {
  std::vector<LabelledImages> parts;
  std::vector<std::filesystem::path> files;
  for (const auto& path : paths) files.push_back(path.string() + version.ending);
  for (const auto& file : files) parts.push_back(version.Map(file));
  CheckEqualLengths(files, parts, version.format);
  return std::make_shared<FixedSizeImages>(
      std::move(parts),
      FixedSizeImages::Options{
          .shape = {kCifarChannels, kCifarSide, kCifarSide}, .mean = set.mean, .std = set.std});
}

struct Place {
  Version version;
  std::filesystem::path folder;

  std::filesystem::path File(const std::string& name) const {
    return folder / (name + version.ending);
  }
};

// The first version whose file `probe` is there, in its archive's folder or without that; the
// binary one where there is none, whose absence is then told.
Place Find(const DatasetOptions& options, const std::string& probe, const Version& binary,
           const Version& pickled) {
  const std::filesystem::path folder =
      options.directory.empty() ? DataCacheFolder() : options.directory;
  for (const Version& version : {binary, pickled}) {
    for (const auto& place : {folder / version.folder, folder}) {
      if (std::filesystem::is_regular_file(place / (probe + version.ending)))
        return {version, place};
    }
  }
  for (const Version& version : {binary, pickled}) {
    const std::filesystem::path archive = folder / version.archive;
    if (!std::filesystem::is_regular_file(archive)) continue;
    throw DataError(folder.string() + ": has " + version.archive +
                    ", but not the files in it; unpack it (tar -xzf " + archive.string() + " -C " +
                    folder.string() + ")");
  }
  const auto inner = folder / binary.folder;
  return {binary, std::filesystem::is_directory(inner) ? inner : folder};
}

// A line each.
std::vector<std::string> ReadLines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line) && lines.size() < kNameLinesMax;) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

// The names of the hundred classes; none if the file that lists them is missing.
std::vector<std::string> Cifar100Names(const Place& place) {
  std::vector<std::string> names;
  if (place.version.pickled_labels == nullptr)
    names = ReadLines(place.folder / "fine_label_names.txt");
  else if (std::filesystem::is_regular_file(place.folder / "meta"))
    names = ReadPickledNames(place.folder / "meta", "fine_label_names", NextMove(kCifar100));
  if (static_cast<std::int64_t>(names.size()) != kCifar100.classes) names.clear();
  return names;
}

}  // namespace

LabelledImages MapCifarFile(const std::string& path, const CifarFormat& format) {
  const std::int64_t record = format.label_bytes + kCifarImageBytes;
  const at::Tensor file = MapDataFile(path, NextMove(format));
  const std::int64_t size = file.numel();
  if (size == 0 || size % record != 0) {
    throw DataError(path + ": " + std::to_string(size) + " bytes are not a whole number of " +
                    format.name + " records of " + std::to_string(record) +
                    " bytes, the file is cut off or something else; " + NextMove(format));
  }
  const std::int64_t count = size / record;
  LabelledImages part{
      file.as_strided({count, kCifarChannels, kCifarSide, kCifarSide},
                      {record, kCifarSide * kCifarSide, kCifarSide, 1}, format.label_bytes),
      at::empty({count}, at::kLong)};
  auto* label = part.labels.data_ptr<std::int64_t>();
  const std::uint8_t* bytes = file.const_data_ptr<std::uint8_t>() + format.label_bytes - 1;
  for (std::int64_t i = 0; i < count; ++i) label[i] = bytes[i * record];
  CheckLabels(part, format.classes, path);
  return part;
}

Dataset OpenCifar10(const DatasetOptions& options) {
  const Place place = Find(
      options, "data_batch_1", {kCifar10, "cifar-10-binary.tar.gz", "cifar-10-batches-bin", ".bin"},
      {kCifar10, "cifar-10-python.tar.gz", "cifar-10-batches-py", "", "labels"});
  std::vector<std::filesystem::path> train;
  for (int i = 1; i <= 5; ++i) train.push_back(place.folder / ("data_batch_" + std::to_string(i)));
  Dataset set{.classes = kCifar10.classes,
              .mean = {0.4914f, 0.4822f, 0.4465f},
              .std = {0.2470f, 0.2435f, 0.2616f},
              .class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog",
                              "horse", "ship", "truck"}};
  set.train = MapFiles(train, place.version, set);
  set.test = MapFiles({place.folder / "test_batch"}, place.version, set);
  CheckArchive(place.File("test_batch"), *set.test, kArchiveTest, kCifar10,
               set.train->size() == kArchiveTrain);
  return set;
}

Dataset OpenCifar100(const DatasetOptions& options) {
  const Place place =
      Find(options, "train", {kCifar100, "cifar-100-binary.tar.gz", "cifar-100-binary", ".bin"},
           {kCifar100, "cifar-100-python.tar.gz", "cifar-100-python", "", "fine_labels"});
  Dataset set{.classes = kCifar100.classes,
              .mean = {0.5071f, 0.4866f, 0.4409f},
              .std = {0.2673f, 0.2564f, 0.2762f},
              .class_names = Cifar100Names(place)};
  set.train = MapFiles({place.folder / "train"}, place.version, set);
  set.test = MapFiles({place.folder / "test"}, place.version, set);
  CheckArchive(place.File("test"), *set.test, kArchiveTest, kCifar100,
               set.train->size() == kArchiveTrain);
  CheckArchive(place.File("train"), *set.train, kArchiveTrain, kCifar100,
               set.test->size() == kArchiveTest);
  return set;
}

namespace {

const bool kCifarAdded =
    Datasets().Add("cifar10", OpenCifar10) && Datasets().Add("cifar100", OpenCifar100);

}  // namespace
}  // namespace ddprun
