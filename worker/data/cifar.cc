// SPDX-License-Identifier: Apache-2.0
#include "worker/data/cifar.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "worker/data/file_bytes.h"

namespace ddprun {
namespace {

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kPixelBytes = kChannels * kSide * kSide;
// Images of both archives.
constexpr std::int64_t kArchiveTrain = 50'000;
constexpr std::int64_t kArchiveTest = 10'000;

// An image has no clone of the repository: its entry point says what to run there.
const std::string& NextMove() {
  static const std::string text = [] {
    const char* const fetch = std::getenv("DDPRUN_FETCH_DATA");
    return std::string("run ") + (fetch == nullptr ? "deploy/fetch-data.sh" : fetch) +
           " or pass --data-dir";
  }();
  return text;
}

// A file that ends between two records is found by its number of them: all files of a training set
// have as many.
void CheckEqualLengths(const std::vector<std::filesystem::path>& paths,
                       const std::vector<LabelledImages>& parts) {
  const auto longest = std::max_element(
      parts.begin(), parts.end(),
      [](const auto& a, const auto& b) { return a.labels.size(0) < b.labels.size(0); });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].labels.size(0) == longest->labels.size(0)) continue;
    const auto& whole = paths[static_cast<std::size_t>(longest - parts.begin())];
    throw DataError(paths[i].string() + " has " + std::to_string(parts[i].labels.size(0)) +
                    " images, but " + whole.filename().string() + " has " +
                    std::to_string(longest->labels.size(0)) + ": the file is cut off; " +
                    NextMove());
  }
}

// A file that has no other beside it: where one set is as long as the archive's, so must the other
// be. (Both may be shorter: somebody's own choice.)
void CheckArchive(const std::filesystem::path& path, const SampleSet& set, std::int64_t whole,
                  const CifarFormat& format, bool other_is_whole) {
  if (!other_is_whole || set.size() >= whole) return;
  throw DataError(path.string() + " has " + std::to_string(set.size()) + " images, but " +
                  format.name + "'s has " + std::to_string(whole) + ": the file is cut off; " +
                  NextMove());
}

std::shared_ptr<const SampleSet> MapFiles(const std::vector<std::filesystem::path>& paths,
                                          const CifarFormat& format, const Dataset& set) {
  std::vector<LabelledImages> parts;
  for (const auto& path : paths) parts.push_back(MapCifarFile(path, format));
  CheckEqualLengths(paths, parts);
  return std::make_shared<StoredImages>(
      std::move(parts),
      StoredImages::Options{.shape = {kChannels, kSide, kSide}, .mean = set.mean, .std = set.std});
}

// As the archive unpacks, or without its folder.
std::filesystem::path Folder(const DatasetOptions& options, const char* inner_name) {
  const std::filesystem::path folder =
      options.directory.empty() ? DataDirectoryDefault() : options.directory;
  const auto inner = folder / inner_name;
  return std::filesystem::is_directory(inner) ? inner : folder;
}

}  // namespace

LabelledImages MapCifarFile(const std::string& path, const CifarFormat& format) {
  const std::int64_t record = format.label_bytes + kPixelBytes;
  const FileBytes file = MapFile(path, NextMove());
  if (file.size == 0 || file.size % record != 0) {
    throw DataError(path + ": " + std::to_string(file.size) + " bytes are not a whole number of " +
                    format.name + " records of " + std::to_string(record) +
                    " bytes, the file is cut off or something else; " + NextMove());
  }
  const std::int64_t count = file.size / record;
  LabelledImages part{file.View(format.label_bytes, {count, kChannels, kSide, kSide},
                                {record, kSide * kSide, kSide, 1}),
                      at::empty({count}, at::kLong)};
  auto* label = part.labels.data_ptr<std::int64_t>();
  const std::uint8_t* bytes = file.data.get() + format.label_bytes - 1;
  for (std::int64_t i = 0; i < count; ++i) label[i] = bytes[i * record];
  CheckLabels(part, format.classes, path);
  return part;
}

Dataset OpenCifar10(const DatasetOptions& options) {
  const auto folder = Folder(options, "cifar-10-batches-bin");
  std::vector<std::filesystem::path> train;
  for (int i = 1; i <= 5; ++i) {
    train.push_back(folder / ("data_batch_" + std::to_string(i) + ".bin"));
  }
  Dataset set{.classes = kCifar10.classes,
              .mean = {0.4914f, 0.4822f, 0.4465f},
              .std = {0.2470f, 0.2435f, 0.2616f}};
  set.train = MapFiles(train, kCifar10, set);
  set.test = MapFiles({folder / "test_batch.bin"}, kCifar10, set);
  CheckArchive(folder / "test_batch.bin", *set.test, kArchiveTest, kCifar10,
               set.train->size() == kArchiveTrain);
  return set;
}

Dataset OpenCifar100(const DatasetOptions& options) {
  const auto folder = Folder(options, "cifar-100-binary");
  Dataset set{.classes = kCifar100.classes,
              .mean = {0.5071f, 0.4866f, 0.4409f},
              .std = {0.2673f, 0.2564f, 0.2762f}};
  set.train = MapFiles({folder / "train.bin"}, kCifar100, set);
  set.test = MapFiles({folder / "test.bin"}, kCifar100, set);
  CheckArchive(folder / "test.bin", *set.test, kArchiveTest, kCifar100,
               set.train->size() == kArchiveTrain);
  CheckArchive(folder / "train.bin", *set.train, kArchiveTrain, kCifar100,
               set.test->size() == kArchiveTest);
  return set;
}

}  // namespace ddprun
