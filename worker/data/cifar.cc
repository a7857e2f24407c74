// SPDX-License-Identifier: Apache-2.0
#include "worker/data/cifar.h"

#include <ATen/Functions.h>

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

// An image has no clone of the repository: its entry point says what to run there.
const std::string& NextMove() {
  static const std::string text = [] {
    const char* const fetch = std::getenv("DDPRUN_FETCH_DATA");
    return std::string("run ") + (fetch == nullptr ? "deploy/fetch-data.sh" : fetch) +
           " or pass --data-dir";
  }();
  return text;
}

std::shared_ptr<const SampleSet> MapFiles(const std::vector<std::filesystem::path>& paths,
                                          const CifarFormat& format, const Dataset& set) {
  std::vector<LabelledImages> parts;
  for (const auto& path : paths) parts.push_back(MapCifarFile(path, format));
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
  return set;
}

Dataset OpenCifar100(const DatasetOptions& options) {
  const auto folder = Folder(options, "cifar-100-binary");
  Dataset set{.classes = kCifar100.classes,
              .mean = {0.5071f, 0.4866f, 0.4409f},
              .std = {0.2673f, 0.2564f, 0.2762f}};
  set.train = MapFiles({folder / "train.bin"}, kCifar100, set);
  set.test = MapFiles({folder / "test.bin"}, kCifar100, set);
  return set;
}

}  // namespace ddprun
