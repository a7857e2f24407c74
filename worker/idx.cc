// SPDX-License-Identifier: Apache-2.0
#include "worker/idx.h"

#include <ATen/Functions.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

namespace ddprun {
namespace {

constexpr std::int64_t kClasses = 10;
constexpr std::uint32_t kImagesMagic = 0x00000803;
constexpr std::uint32_t kLabelsMagic = 0x00000801;
constexpr std::uint32_t kSideMax = 4096;
constexpr std::int64_t kBytesMax = std::int64_t{4} << 30;
constexpr unsigned kReadBytesMax = 1u << 20;
constexpr char kNextMove[] =
    "install dataset-fashion-mnist (deploy/setup.sh does) or pass --data-dir";

[[noreturn]] void Fail(const std::string& path, const std::string& fact) {
  throw DataError(path + ": " + fact + "; " + kNextMove);
}

// Reads plain and compressed files alike, which is what zlib's gz functions do.
class IdxReader {
 public:
  explicit IdxReader(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_) Fail(path_, std::strerror(errno) + std::string(", nor is there one with .gz"));
    gzbuffer(file_.get(), 256 * 1024);
  }

  std::uint32_t Number(const char* what) {
    std::array<std::uint8_t, 4> b{};
    if (Read(b.data(), b.size()) != b.size()) Fail(path_, std::string("ends before its ") + what);
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }

  void Magic(std::uint32_t expected, const char* what) {
    const std::uint32_t magic = Number("magic number");
    if (magic == expected) return;
    Fail(path_, "starts with " + std::to_string(magic) + ", but an IDX file of " + what +
                    " starts with " + std::to_string(expected));
  }

  // Everything that is left, which must be `bytes` long.
  void Body(std::uint8_t* out, std::size_t bytes, const std::string& what) {
    const std::size_t got = Read(out, bytes);
    if (got != bytes) {
      Fail(path_, "is too short, with " + std::to_string(got) + " of the " + std::to_string(bytes) +
                      " bytes of " + what);
    }
    std::uint8_t extra = 0;
    if (Read(&extra, 1) != 0) Fail(path_, "goes on after its " + what + ", it is damaged");
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };

  std::size_t Read(std::uint8_t* out, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes) {
      const auto want = static_cast<unsigned>(std::min<std::size_t>(bytes - done, kReadBytesMax));
      const int got = gzread(file_.get(), out + done, want);
      if (got < 0) Fail(path_, std::string("cannot be decompressed (") + ErrorText() + ")");
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  const char* ErrorText() {
    int code = 0;
    const char* text = gzerror(file_.get(), &code);
    return code == Z_ERRNO ? std::strerror(errno) : text;
  }

  const std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

at::Tensor ReadImages(const std::string& path) {
  IdxReader reader(path);
  reader.Magic(kImagesMagic, "images");
  const std::int64_t count = reader.Number("number of images");
  const std::uint32_t height = reader.Number("height");
  const std::uint32_t width = reader.Number("width");
  const bool sane = count > 0 && height > 0 && width > 0 && height <= kSideMax && width <= kSideMax;
  if (!sane || count * height * width > kBytesMax) {
    Fail(path, "claims " + std::to_string(count) + " images of " + std::to_string(height) + "x" +
                   std::to_string(width) + ", which cannot be");
  }
  at::Tensor images = at::empty({count, 1, height, width}, at::kByte);
  reader.Body(images.data_ptr<std::uint8_t>(), images.numel(), std::to_string(count) + " images");
  return images;
}

at::Tensor ReadLabels(const std::string& path) {
  IdxReader reader(path);
  reader.Magic(kLabelsMagic, "labels");
  const std::int64_t count = reader.Number("number of labels");
  if (count <= 0 || count > kBytesMax) Fail(path, "claims " + std::to_string(count) + " labels");
  at::Tensor labels = at::empty({count}, at::kByte);
  reader.Body(labels.data_ptr<std::uint8_t>(), count, std::to_string(count) + " labels");
  return labels.to(at::kLong);
}

// Where neither is there the plain name, which the reader then complains about.
std::string PlainOrCompressed(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path plain = folder / name;
  const std::filesystem::path compressed = folder / (name + ".gz");
  return !std::filesystem::exists(plain) && std::filesystem::exists(compressed) ? compressed
                                                                                : plain;
}

LabelledImages ReadFashionMnistPart(const std::filesystem::path& folder,
                                    const std::string& prefix) {
  const std::string images_path = PlainOrCompressed(folder, prefix + "-images-idx3-ubyte");
  LabelledImages set =
      ReadIdxPair(images_path, PlainOrCompressed(folder, prefix + "-labels-idx1-ubyte"));
  if (set.images.size(2) != 28 || set.images.size(3) != 28) {
    Fail(images_path, "holds images of " + std::to_string(set.images.size(2)) + "x" +
                          std::to_string(set.images.size(3)) + ", not of 28x28");
  }
  set.images = at::constant_pad_nd(set.images, {2, 2, 2, 2});
  return set;
}

}  // namespace

LabelledImages ReadIdxPair(const std::string& images_path, const std::string& labels_path) {
  LabelledImages set{ReadImages(images_path), ReadLabels(labels_path)};
  if (set.images.size(0) != set.size()) {
    Fail(labels_path, "holds " + std::to_string(set.size()) + " labels for the " +
                          std::to_string(set.images.size(0)) + " images of " + images_path);
  }
  CheckLabels(set, kClasses, labels_path);
  return set;
}

Dataset OpenFashionMnist(const DatasetOptions& options) {
  const std::string folder =
      options.directory.empty() ? kFashionMnistDirectoryDefault : options.directory;
  Dataset set;
  set.train = ReadFashionMnistPart(folder, "train");
  set.test = ReadFashionMnistPart(folder, "t10k");
  set.classes = kClasses;
  set.channels = 3;
  set.mean = {0.2860f, 0.2860f, 0.2860f};
  set.std = {0.3530f, 0.3530f, 0.3530f};
  return set;
}

}  // namespace ddprun
