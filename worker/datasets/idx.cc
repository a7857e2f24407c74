// SPDX-License-Identifier: Apache-2.0
#include "worker/datasets/idx.h"

#include <ATen/Functions.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "worker/data/unpacked_file.h"

namespace ddprun {
namespace {

constexpr std::int64_t kFashionMnistClasses = 10;
constexpr std::int64_t kIdxClassesMax = 256;  // a label is a byte
constexpr std::uint32_t kImagesMagic = 0x00000803;
constexpr std::uint32_t kLabelsMagic = 0x00000801;
constexpr std::int64_t kIdxSideMax = 4096;
constexpr std::int64_t kBytesMax = std::int64_t{4} << 30;
constexpr std::int64_t kImagesMax = 50'000'000;  // a label takes 8 bytes of memory
constexpr unsigned kReadBytesMax = 1u << 20;
constexpr std::int64_t kImagesHeaderBytes = 16;
constexpr std::int64_t kStatisticsImages = 1000;
constexpr char kNextMove[] =
    "install dataset-fashion-mnist (deploy/setup.sh does) or pass --data-dir";

[[noreturn]] void Fail(const std::string& path, const std::string& fact) {
  throw DataError(path + ": " + fact + "; " + kNextMove);
}

std::string TooShort(std::int64_t got, std::int64_t wanted, const std::string& what) {
  return "is too short, with " + std::to_string(got) + " of the " + std::to_string(wanted) +
         " bytes of " + what;
}

std::string TooLong(const std::string& what) {
  return "goes on after its " + what + ", it is damaged";
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
      Fail(path_, TooShort(static_cast<std::int64_t>(got), static_cast<std::int64_t>(bytes), what));
    }
    std::uint8_t extra = 0;
    if (Read(&extra, 1) != 0) Fail(path_, TooLong(what));
  }

  bool IsPlain() const { return gzdirect(file_.get()) == 1; }

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

at::Tensor MapImages(const std::string& path) {
  IdxReader reader(path);
  reader.Magic(kImagesMagic, "images");
  const std::int64_t count = reader.Number("number of images");
  const std::int64_t height = reader.Number("height");
  const std::int64_t width = reader.Number("width");
  const bool sane = count > 0 && count <= kImagesMax && height > 0 && width > 0 &&
                    height <= kIdxSideMax && width <= kIdxSideMax;
  if (!sane || count * height * width > kBytesMax) {
    Fail(path, "claims " + std::to_string(count) + " images of " + std::to_string(height) + "x" +
                   std::to_string(width) + ", which cannot be");
  }
  const std::int64_t body = count * height * width;
  const std::string what = std::to_string(count) + " images";
  const at::Tensor file = reader.IsPlain()
                              ? MapDataFile(path, kNextMove)
                              : MapUnpacked(path, kImagesHeaderBytes + body, kNextMove);
  if (file.numel() < kImagesHeaderBytes + body) {
    Fail(path, TooShort(file.numel() - kImagesHeaderBytes, body, what));
  }
  if (file.numel() > kImagesHeaderBytes + body) Fail(path, TooLong(what));
  return file.as_strided({count, 1, height, width}, {height * width, height * width, width, 1},
                         kImagesHeaderBytes);
}

// Takes no more memory than the labels of these images: a few bytes of gzip can claim gigabytes.
at::Tensor ReadLabels(const std::string& path, const std::string& images_path,
                      std::int64_t images) {
  IdxReader reader(path);
  reader.Magic(kLabelsMagic, "labels");
  const std::int64_t count = reader.Number("number of labels");
  if (count != images) {
    Fail(path, "holds " + std::to_string(count) + " labels for the " + std::to_string(images) +
                   " images of " + images_path);
  }
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

LabelledImages ReadPart(const std::filesystem::path& folder, const std::string& prefix,
                        std::int64_t classes) {
  return ReadIdxPair(PlainOrCompressed(folder, prefix + "-images-idx3-ubyte"),
                     PlainOrCompressed(folder, prefix + "-labels-idx1-ubyte"), classes);
}

void RequireSize(const LabelledImages& part, const std::filesystem::path& folder,
                 const std::string& prefix, std::int64_t height, std::int64_t width) {
  const auto size = [](std::int64_t h, std::int64_t w) {
    return std::to_string(h) + "x" + std::to_string(w);
  };
  if (part.images.size(2) == height && part.images.size(3) == width) return;
  Fail(PlainOrCompressed(folder, prefix + "-images-idx3-ubyte"),
       "holds images of " + size(part.images.size(2), part.images.size(3)) + ", not of " +
           size(height, width));
}

// All models here take three channels and images that are not too small.
Dataset Shown(LabelledImages train, LabelledImages test, std::int64_t classes, float mean,
              float std) {
  const SampleShape shape{3, std::max(kIdxSideMin, train.images.size(2)),
                          std::max(kIdxSideMin, train.images.size(3))};
  Dataset set{.classes = classes, .mean = {mean, mean, mean}, .std = {std, std, std}};
  const FixedSizeImages::Options options{.shape = shape, .mean = set.mean, .std = set.std};
  set.train = std::make_shared<FixedSizeImages>(std::vector{std::move(train)}, options);
  set.test = std::make_shared<FixedSizeImages>(std::vector{std::move(test)}, options);
  return set;
}

}  // namespace

LabelledImages ReadIdxPair(const std::string& images_path, const std::string& labels_path,
                           std::int64_t classes) {
  LabelledImages set{.images = MapImages(images_path), .labels = {}};
  set.labels = ReadLabels(labels_path, images_path, set.images.size(0));
  CheckLabels(set, classes, labels_path);
  return set;
}

Dataset OpenFashionMnist(const DatasetOptions& options) {
  const std::string folder =
      options.directory.empty() ? kFashionMnistDirectoryDefault : options.directory;
  LabelledImages train = ReadPart(folder, "train", kFashionMnistClasses);
  RequireSize(train, folder, "train", 28, 28);
  LabelledImages test = ReadPart(folder, "t10k", kFashionMnistClasses);
  RequireSize(test, folder, "t10k", 28, 28);
  Dataset set = Shown(std::move(train), std::move(test), kFashionMnistClasses, 0.2860f, 0.3530f);
  set.class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                     "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  return set;
}

Dataset OpenIdx(const DatasetOptions& options) {
  if (options.directory.empty()) {
    throw DataError("--dataset idx has no folder of its own; pass --data-dir");
  }
  LabelledImages train = ReadPart(options.directory, "train", kIdxClassesMax);
  LabelledImages test = ReadPart(options.directory, "t10k", kIdxClassesMax);
  RequireSize(test, options.directory, "t10k", train.images.size(2), train.images.size(3));
  const at::Tensor values =
      train.images.narrow(0, 0, std::min(kStatisticsImages, train.size())).to(at::kFloat).div(255);
  // A picture of one colour has none.
  const float deviation = std::max(values.std(false).item<float>(), 1.0f / 255);
  const std::int64_t classes =
      1 + std::max(train.labels.max().item<std::int64_t>(), test.labels.max().item<std::int64_t>());
  return Shown(std::move(train), std::move(test), std::max<std::int64_t>(2, classes),
               values.mean().item<float>(), deviation);
}

namespace {

const bool kIdxAdded =
    Datasets().Add("fashion-mnist", OpenFashionMnist) && Datasets().Add("idx", OpenIdx);

}  // namespace
}  // namespace ddprun
