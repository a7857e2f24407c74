// SPDX-License-Identifier: Apache-2.0
#include "worker/cifar10.h"

#include <ATen/Functions.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace ddprun {
namespace {

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kPixelBytes = kChannels * kSide * kSide;
constexpr std::int64_t kRecordBytes = 1 + kPixelBytes;
constexpr std::int64_t kClasses = 10;
constexpr char kNextMove[] = "run deploy/fetch-data.sh or pass --data-dir";

std::vector<char> ReadFile(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw DataError(path + ": " + error.message() + "; " + kNextMove);
  if (size == 0 || size % kRecordBytes != 0) {
    throw DataError(path + ": " + std::to_string(size) +
                    " bytes are not a whole number of CIFAR-10 records of " +
                    std::to_string(kRecordBytes) +
                    " bytes, the file is cut off or something else; " + kNextMove);
  }
  std::vector<char> bytes(size);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    throw DataError(path + ": cannot be read; check its permissions");
  }
  return bytes;
}

}  // namespace

std::string Cifar10DirectoryDefault() {
  if (const char* cache = std::getenv("DDPRUN_CACHE_DIR")) return std::string(cache) + "/data";
  if (const char* caches = std::getenv("XDG_CACHE_HOME")) {
    return std::string(caches) + "/ddprun/data";
  }
  const char* home = std::getenv("HOME");
  return std::string(home ? home : ".") + "/.cache/ddprun/data";
}

LabelledImages ReadCifar10Files(const std::vector<std::string>& paths) {
  std::vector<at::Tensor> images;
  std::vector<at::Tensor> labels;
  for (const auto& path : paths) {
    const std::vector<char> bytes = ReadFile(path);
    const auto count = static_cast<std::int64_t>(bytes.size()) / kRecordBytes;
    LabelledImages part{at::empty({count, kChannels, kSide, kSide}, at::kByte),
                        at::empty({count}, at::kLong)};
    auto* pixels = part.images.data_ptr<std::uint8_t>();
    auto* label = part.labels.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < count; ++i) {
      const char* record = bytes.data() + i * kRecordBytes;
      label[i] = static_cast<unsigned char>(record[0]);
      std::memcpy(pixels + i * kPixelBytes, record + 1, kPixelBytes);
    }
    CheckLabels(part, kClasses, path);
    images.push_back(part.images);
    labels.push_back(part.labels);
  }
  return {at::cat(images), at::cat(labels)};
}

Dataset OpenCifar10(const DatasetOptions& options) {
  std::filesystem::path folder =
      options.directory.empty() ? Cifar10DirectoryDefault() : options.directory;
  if (const auto inner = folder / "cifar-10-batches-bin"; std::filesystem::is_directory(inner))
    folder = inner;
  std::vector<std::string> train;
  for (int i = 1; i <= 5; ++i)
    train.push_back(folder / ("data_batch_" + std::to_string(i) + ".bin"));
  Dataset set;
  set.train = ReadCifar10Files(train);
  set.test = ReadCifar10Files({folder / "test_batch.bin"});
  set.classes = kClasses;
  set.channels = kChannels;
  set.mean = {0.4914f, 0.4822f, 0.4465f};
  set.std = {0.2470f, 0.2435f, 0.2616f};
  return set;
}

}  // namespace ddprun
