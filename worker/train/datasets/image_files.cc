// SPDX-License-Identifier: Apache-2.0
#include "worker/train/datasets/image_files.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "worker/train/data/dataset.h"
#include "worker/train/data/image_decoder.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr char kAnnotations[] = "val_annotations.txt";
constexpr char kAnnotatedImages[] = "images";
constexpr std::size_t kKindsShownMax = 5;

// A file by the folder that it is in and its name, both as they are sorted.
using FilePlace = std::pair<std::string, std::string>;

template <typename Visit>
void ForEachEntry(const fs::path& folder, Visit visit) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (entries->path().filename().native()[0] != '.') visit(*entries);  // not hidden
  }
  if (error) {
    throw DataError(folder.string() + ": " + error.message() +
                    "; pass as --data-dir a folder that has train/CLASS/ and val/CLASS/");
  }
}

bool IsFolder(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_directory(error);
}

// Adds the images in `root`/`below` and in the folders there. `depth`: how many of these there may
// be in each other.
void Walk(const fs::path& root, const std::string& below, int depth, std::vector<FilePlace>& images,
          PassedOver& others) {
  const fs::path folder = root / below;
  if (depth < 0) {
    throw DataError(folder.string() + " lies more than " + std::to_string(kFolderDepthMax) +
                    " folders below its class; remove the symbolic link that leads back to a "
                    "folder above it, or move its images");
  }
  std::vector<std::string> folders;
  ForEachEntry(folder, [&](const fs::directory_entry& entry) {
    std::string name = entry.path().filename();
    if (IsFolder(entry))
      folders.push_back(std::move(name));
    else if (HasImageEnding(name))
      images.emplace_back(below, std::move(name));
    else
      others.Add(entry.path());
  });
  for (const std::string& name : folders)
    Walk(root, below.empty() ? name : below + "/" + name, depth - 1, images, others);
}

std::vector<FilePlace> ImagesOfClass(const fs::path& folder, const std::string& name,
                                     PassedOver& others) {
  std::vector<FilePlace> images;
  Walk(folder, name, kFolderDepthMax, images, others);
  std::sort(images.begin(), images.end());
  return images;
}

void AddAll(const std::vector<FilePlace>& places, std::int64_t label, ImageFiles& files) {
  for (const auto& [below, name] : places) files.Add(below + "/" + name, label);
}

std::map<std::string, std::int64_t> LabelsOf(const std::vector<std::string>& classes) {
  std::map<std::string, std::int64_t> labels;
  for (std::size_t i = 0; i < classes.size(); ++i)
    labels[classes[i]] = static_cast<std::int64_t>(i);
  return labels;
}

}  // namespace

void PassedOver::Add(const fs::path& file) {
  std::string kind = file.extension();
  std::transform(kind.begin(), kind.end(), kind.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  ++kinds_[kind];
  // The order in which a folder lists its files is not the same everywhere.
  if (first_.empty() || file.native() < first_) first_ = file.native();
}

void PassedOver::Add(const PassedOver& more) {
  for (const auto& [kind, count] : more.kinds_) kinds_[kind] += count;
  if (first_.empty() || (!more.first_.empty() && more.first_ < first_)) first_ = more.first_;
}

std::string PassedOver::Sentence() const {
  std::vector<std::pair<std::int64_t, std::string>> counts;
  std::int64_t sum = 0;
  for (const auto& [kind, count] : kinds_) {
    counts.emplace_back(-count, kind);  // the most frequent first
    sum += count;
  }
  if (counts.empty()) return "";
  std::sort(counts.begin(), counts.end());
  std::string list;
  for (std::size_t i = 0; i < std::min(counts.size(), kKindsShownMax); ++i) {
    const auto& [count, kind] = counts[i];
    list += (i == 0 ? "" : ", ") + std::to_string(-count) + " " +
            (kind.empty() ? "without an ending" : kind);
  }
  if (counts.size() > kKindsShownMax)
    list += ", " + std::to_string(counts.size() - kKindsShownMax) +
            (counts.size() - kKindsShownMax == 1 ? " more kind" : " more kinds");
  return std::to_string(sum) + (sum == 1 ? " file is" : " files are") + " passed over, being no " +
         kImageEndings + ": " + list + " (the first: " + first_ + ")";
}

void ImageFiles::Add(std::string_view name, std::int64_t label) {
  images_.push_back(
      {names_.size(), static_cast<std::uint32_t>(name.size()), static_cast<std::uint32_t>(label)});
  names_ += name;
}

std::string ImageFiles::Path(std::int64_t index) const {
  return folder_.string() + "/" + Name(index);
}

std::string ImageFiles::Name(std::int64_t index) const {
  const Image& image = images_[static_cast<std::size_t>(index)];
  return names_.substr(image.name_begin, image.name_size);
}

std::vector<std::string> ListClasses(const fs::path& folder) {
  std::vector<std::string> classes;
  ForEachEntry(folder, [&classes](const fs::directory_entry& entry) {
    if (IsFolder(entry)) classes.push_back(entry.path().filename());
  });
  if (classes.empty()) {
    throw DataError(folder.string() +
                    ": has no folders, but each class of images must be one; make " +
                    folder.string() + "/CLASS/ and put its images there");
  }
  std::sort(classes.begin(), classes.end());
  return classes;
}

std::string NoteOfClasslessImages(const fs::path& folder) {
  std::int64_t count = 0;
  std::string first;
  ForEachEntry(folder, [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename();
    if (!HasImageEnding(name) || IsFolder(entry)) return;
    ++count;
    if (first.empty() || name < first) first = name;
  });
  if (count == 0) return "";
  return std::to_string(count) + (count == 1 ? " image lies in " : " images lie in ") +
         folder.string() + " itself and not in a class's folder, and " +
         (count == 1 ? "is" : "are") + " not used (the first: " + first + ")";
}

ImageFiles ListTrainingImages(const fs::path& folder, const std::vector<std::string>& classes,
                              PassedOver& others) {
  ImageFiles files(folder);
  for (std::size_t label = 0; label < classes.size(); ++label) {
    PassedOver own;
    const std::vector<FilePlace> images = ImagesOfClass(folder, classes[label], own);
    if (images.empty()) {
      const std::string found = own.Sentence();
      throw DataError((folder / classes[label]).string() + ": has no " + kImageEndings + " file" +
                      (found.empty() ? "" : " (" + found + ")") +
                      "; put the class's images there, or remove the folder here and in the test "
                      "images");
    }
    others.Add(own);
    AddAll(images, static_cast<std::int64_t>(label), files);
  }
  return files;
}

ImageFiles ListTestImages(const fs::path& folder, const std::vector<std::string>& classes,
                          PassedOver& others) {
  ImageFiles files(folder);
  const std::map<std::string, std::int64_t> labels = LabelsOf(classes);
  for (const std::string& name : ListClasses(folder)) {
    const std::vector<FilePlace> images = ImagesOfClass(folder, name, others);
    const auto label = labels.find(name);
    if (label != labels.end()) {
      AddAll(images, label->second, files);
    } else if (!images.empty()) {
      throw DataError((folder / name).string() +
                      " has test images of a class that has no training "
                      "images; add those, or remove the folder");
    }
  }
  if (files.size() == 0) {
    throw DataError(folder.string() + ": has no test image of any class; put some into " +
                    (folder / classes.front()).string() + " and the folders of other classes");
  }
  return files;
}

bool IsAnnotated(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kAnnotations, error) &&
         fs::is_directory(folder / kAnnotatedImages, error);
}

ImageFiles ListAnnotatedImages(const fs::path& folder, const std::vector<std::string>& classes,
                               PassedOver& others) {
  const std::string list = folder / kAnnotations;
  std::set<std::string> missing;  // a line
  ForEachEntry(folder / kAnnotatedImages, [&](const fs::directory_entry& entry) {
    if (HasImageEnding(entry.path()))
      missing.insert(entry.path().filename());
    else
      others.Add(entry.path());
  });
  const std::map<std::string, std::int64_t> labels = LabelsOf(classes);
  ImageFiles files(folder);
  std::ifstream lines(list);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::size_t end = line.find('\t');
    const std::string name = line.substr(0, end);
    const std::string of =
        end == std::string::npos ? "" : line.substr(end + 1, line.find('\t', end + 1) - end - 1);
    const auto fail = [&](const std::string& fact) {
      throw DataError(list + ": line " + std::to_string(number) + " " + fact +
                      "; get the data set anew, or remove " + list +
                      " and put the images into a folder of each class");
    };
    const auto label = labels.find(of);
    if (label == labels.end()) fail("is not FILE<tab>CLASS with a class that has training images");
    if (missing.erase(name) == 0)
      fail("names " + name + ", which is not in " + kAnnotatedImages + "/ or has a line before");
    files.Add(std::string(kAnnotatedImages) + "/" + name, label->second);
  }
  if (!missing.empty() || files.size() == 0) {
    throw DataError(list + ": has no line for " +
                    (missing.empty() ? "any image" : *missing.begin()) +
                    "; get the data set anew, or add it");
  }
  return files;
}

}  // namespace ddprun
