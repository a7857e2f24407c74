// SPDX-License-Identifier: Apache-2.0
#include "worker/train/datasets/idx.h"

#include <ATen/Functions.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "worker/train/data/unpacked_file.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

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
constexpr char kFashionMnistMove[] =
    "for --dataset fashion-mnist install dataset-fashion-mnist (deploy/setup.sh does) or pass "
    "--data-dir";
constexpr char kIdxMove[] =
    "for --dataset idx pass as --data-dir the folder of its four files, whole ones";

// A file, and what to do where it is missing or damaged.
struct Source {
  std::string path;
  std::string next_move;

  [[noreturn]] void Fail(const std::string& fact) const {
    throw DataError(path + ": " + fact + "; " + next_move);
  }
};

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
  explicit IdxReader(const Source& source)
      : source_(source), file_(gzopen(source.path.c_str(), "rb")) {
    if (!file_) source_.Fail(std::strerror(errno));
    gzbuffer(file_.get(), 256 * 1024);
  }

  std::uint32_t Number(const char* what) {
    std::array<std::uint8_t, 4> b{};
    if (Read(b.data(), b.size()) != b.size()) source_.Fail(std::string("ends before its ") + what);
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }

  void Magic(std::uint32_t expected, const char* what) {
    const std::uint32_t magic = Number("magic number");
    if (magic == expected) return;
    source_.Fail("starts with " + std::to_string(magic) + ", but an IDX file of " + what +
                 " starts with " + std::to_string(expected));
  }

  // Everything that is left, which must be `bytes` long.
  void Body(std::uint8_t* out, std::size_t bytes, const std::string& what) {
    const std::size_t got = Read(out, bytes);
    if (got != bytes) {
      source_.Fail(
          TooShort(static_cast<std::int64_t>(got), static_cast<std::int64_t>(bytes), what));
    }
    std::uint8_t extra = 0;
    if (Read(&extra, 1) != 0) source_.Fail(TooLong(what));
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
      if (got < 0) source_.Fail(std::string("cannot be decompressed (") + ErrorText() + ")");
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

  const Source& source_;
  std::unique_ptr<gzFile_s, Close> file_;
};

at::Tensor MapImages(const Source& source) {
  IdxReader reader(source);
  reader.Magic(kImagesMagic, "images");
  const std::int64_t count = reader.Number("number of images");
  const std::int64_t height = reader.Number("height");
  const std::int64_t width = reader.Number("width");
  const bool sane = count > 0 && count <= kImagesMax && height > 0 && width > 0 &&
                    height <= kIdxSideMax && width <= kIdxSideMax;
  if (!sane || count * height * width > kBytesMax) {
    source.Fail("claims " + std::to_string(count) + " images of " + std::to_string(height) + "x" +
                std::to_string(width) + ", which cannot be");
  }
  const std::int64_t body = count * height * width;
  const std::string what = std::to_string(count) + " images";
  const at::Tensor file =
      reader.IsPlain() ? MapDataFile(source.path, source.next_move)
                       : MapUnpacked(source.path, kImagesHeaderBytes + body, source.next_move);
  if (file.numel() < kImagesHeaderBytes + body) {
    source.Fail(TooShort(file.numel() - kImagesHeaderBytes, body, what));
  }
  if (file.numel() > kImagesHeaderBytes + body) source.Fail(TooLong(what));
  return file.as_strided({count, 1, height, width}, {height * width, height * width, width, 1},
                         kImagesHeaderBytes);
}

// Takes no more memory than the labels of these images: a few bytes of gzip can claim gigabytes.
at::Tensor ReadLabels(const Source& source, const std::string& images_path, std::int64_t images) {
  IdxReader reader(source);
  reader.Magic(kLabelsMagic, "labels");
  const std::int64_t count = reader.Number("number of labels");
  if (count != images) {
    source.Fail("holds " + std::to_string(count) + " labels for the " + std::to_string(images) +
                " images of " + images_path);
  }
  at::Tensor labels = at::empty({count}, at::kByte);
  reader.Body(labels.data_ptr<std::uint8_t>(), count, std::to_string(count) + " labels");
  return labels.to(at::kLong);
}

// The images, and the labels of `labels`.
LabelledImages ReadPair(const Source& images, const std::function<Source()>& labels,
                        std::int64_t classes) {
  LabelledImages set{.images = MapImages(images), .labels = {}};
  const Source source = labels();  // what is wrong with the images is told first
  set.labels = ReadLabels(source, images.path, set.images.size(0));
  CheckLabels(set, classes, source.path);
  return set;
}

// The file of that name in the folder, which MNIST's mirrors write with a dot and torchvision with
// a dash before its type, plain or compressed. Empty if there is none.
fs::path FindFile(const fs::path& folder, const std::string& stem, const std::string& type) {
  for (const char* sign : {"-", "."}) {
    for (const char* ending : {"", ".gz"}) {
      const fs::path path = folder / (stem + sign + type + ending);
      std::error_code error;
      if (fs::is_regular_file(path, error)) return path;
    }
  }
  return {};
}

constexpr char kImagesType[] = "idx3-ubyte";
constexpr char kLabelsType[] = "idx1-ubyte";

bool HasImages(const fs::path& folder) {
  return !FindFile(folder, "train-images", kImagesType).empty();
}

// The folder of the files: that of --data-dir, or the one where torchvision puts them below it,
// NAME/raw. `names`: which data sets'; empty: any. Throws DataError if there are several.
fs::path FolderOf(const fs::path& told, std::vector<std::string> names,
                  const std::string& next_move) {
  if (HasImages(told)) return told;
  if (HasImages(told / "raw")) return told / "raw";
  if (names.empty()) {
    std::error_code error;
    fs::directory_iterator entries(told, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error))
      names.push_back(entries->path().filename());
    std::sort(names.begin(), names.end());
  }
  std::vector<fs::path> found;
  for (const std::string& name : names) {
    if (HasImages(told / name / "raw")) found.push_back(told / name / "raw");
  }
  if (found.size() > 1) {
    throw DataError(told.string() + ": has several data sets, the first two in " +
                    found[0].string() + " and " + found[1].string() + "; " + next_move);
  }
  return found.empty() ? told : found[0];
}

Source FindSource(const fs::path& folder, const std::string& stem, const std::string& type,
                  const std::string& next_move) {
  const fs::path path = FindFile(folder, stem, type);
  if (!path.empty()) return {path, next_move};
  std::error_code error;
  const Source absent{folder / (stem + "-" + type), next_move};
  if (!fs::is_directory(folder, error))
    Source{folder, next_move}.Fail(error ? error.message() : "is no folder");
  absent.Fail("there is no such file, nor " + stem + "." + type + ", nor either with .gz");
}

LabelledImages ReadPart(const fs::path& folder, const std::string& part, std::int64_t classes,
                        const std::string& next_move) {
  return ReadPair(
      FindSource(folder, part + "-images", kImagesType, next_move),
      [&] { return FindSource(folder, part + "-labels", kLabelsType, next_move); }, classes);
}

void RequireSize(const LabelledImages& set, const fs::path& folder, const std::string& part,
                 std::int64_t height, std::int64_t width, const std::string& next_move) {
  const auto size = [](std::int64_t h, std::int64_t w) {
    return std::to_string(h) + "x" + std::to_string(w);
  };
  if (set.images.size(2) == height && set.images.size(3) == width) return;
  FindSource(folder, part + "-images", kImagesType, next_move)
      .Fail("holds images of " + size(set.images.size(2), set.images.size(3)) + ", not of " +
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
  return ReadPair(
      {images_path, kIdxMove},
      [&] {
        return Source{labels_path, kIdxMove};
      },
      classes);
}

Dataset OpenFashionMnist(const DatasetOptions& options) {
  const fs::path folder =
      FolderOf(options.directory.empty() ? kFashionMnistDirectoryDefault : options.directory,
               {"FashionMNIST"}, kFashionMnistMove);
  LabelledImages train = ReadPart(folder, "train", kFashionMnistClasses, kFashionMnistMove);
  RequireSize(train, folder, "train", 28, 28, kFashionMnistMove);
  LabelledImages test = ReadPart(folder, "t10k", kFashionMnistClasses, kFashionMnistMove);
  RequireSize(test, folder, "t10k", 28, 28, kFashionMnistMove);
  Dataset set = Shown(std::move(train), std::move(test), kFashionMnistClasses, 0.2860f, 0.3530f);
  set.class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                     "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  return set;
}

Dataset OpenIdx(const DatasetOptions& options) {
  if (options.directory.empty()) {
    throw DataError("--dataset idx has no folder of its own; pass --data-dir");
  }
  const fs::path folder = FolderOf(options.directory, {}, kIdxMove);
  LabelledImages train = ReadPart(folder, "train", kIdxClassesMax, kIdxMove);
  LabelledImages test = ReadPart(folder, "t10k", kIdxClassesMax, kIdxMove);
  RequireSize(test, folder, "t10k", train.images.size(2), train.images.size(3), kIdxMove);
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
