// SPDX-License-Identifier: Apache-2.0
// Which files of a folder are images of which class. Nothing of an image is read here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddprun {

// Folders in each other below a class's, of which a symbolic link can make any number.
inline constexpr int kFolderDepthMax = 16;

// Files of a data set that are not read, counted by their kind.
class PassedOver {
 public:
  void Add(const std::filesystem::path& file);
  void Add(const PassedOver& more);
  // "3 files are passed over, ...: 2 .webp, 1 .txt (the first: PATH)"; empty where there are none.
  std::string Sentence() const;

 private:
  std::map<std::string, std::int64_t> kinds_;  // by the ending, in lower case
  std::string first_;
};

// Images by their index, each with its label. Names lie one after another in one string: an
// ImageNet's are 40 MB so.
class ImageFiles {
 public:
  explicit ImageFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // `name` is the path below the folder.
  void Add(std::string_view name, std::int64_t label);

  std::string folder() const { return folder_; }
  std::int64_t size() const { return static_cast<std::int64_t>(images_.size()); }
  std::string Path(std::int64_t index) const;
  // Below the folder.
  std::string Name(std::int64_t index) const;
  std::int64_t Label(std::int64_t index) const {
    return images_[static_cast<std::size_t>(index)].label;
  }

 private:
  struct Image {
    std::uint64_t name_begin;
    std::uint32_t name_size;
    std::uint32_t label;
  };

  std::filesystem::path folder_;
  std::string names_;
  std::vector<Image> images_;
};

// The names of the folders in `folder`, sorted. Hidden ones are none. Throws DataError: it cannot
// be read, or has none.
std::vector<std::string> ListClasses(const std::filesystem::path& folder);

// A note of the images that lie in `folder` itself, where no class is; empty if there are none.
// Throws DataError.
std::string NoteOfClasslessImages(const std::filesystem::path& folder);

// The images in folder/CLASS/ and in all folders below it, for each of `classes`, whose places are
// the labels. In the order of torchvision's ImageFolder: by class, by folder, by name. Throws
// DataError: a folder cannot be read or lies deeper than kFolderDepthMax, or a class has no image.
ImageFiles ListTrainingImages(const std::filesystem::path& folder,
                              const std::vector<std::string>& classes, PassedOver& others);

// The same for testing. A class may have no images or no folder; a folder that is not of `classes`
// must have no images. Throws DataError, also where no class has an image.
ImageFiles ListTestImages(const std::filesystem::path& folder,
                          const std::vector<std::string>& classes, PassedOver& others);

// Whether the folder is laid out as Tiny ImageNet's val/: all images in images/, and their classes
// in val_annotations.txt.
bool IsAnnotated(const std::filesystem::path& folder);

// The images of such a folder, in the order of its lines "FILE<tab>CLASS<tab>...". Throws
// DataError: a line names another class or a file that is missing, or a file has no line.
ImageFiles ListAnnotatedImages(const std::filesystem::path& folder,
                               const std::vector<std::string>& classes, PassedOver& others);

}  // namespace ddprun
