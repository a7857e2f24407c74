// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/weight_files.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string_view>

#include "proto/input_file.h"
#include "proto/json_text.h"
#include "worker/library/files/bounded_json.h"
#include "worker/library/files/state_dict.h"
#include "worker/library/files/torch_archive.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 4> kWeightFiles = {
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model.bin.index.json"};
constexpr char kIndexEnd[] = ".index.json";
constexpr std::size_t kIndexBytesMax = std::size_t{16} << 20;  // of 100 000 tensors
constexpr std::size_t kBeginBytes = 64;

constexpr char kWebPage[] = "is a web page; download the file itself";

// A kind of file that is often given instead of weights, known by its first bytes.
struct OtherFile {
  std::string_view begin;
  const char* sentence;  // after the path
};
constexpr std::array<OtherFile, 6> kOtherFiles = {
    {{"version https://git-lfs", "is a pointer of Git LFS; get the weights with git lfs pull"},
     {"<!DOCTYPE", kWebPage},
     {"<!doctype", kWebPage},
     {"<html", kWebPage},
     {"\x1f\x8b", "is compressed by gzip; unpack it"},
     {"\x89HDF\r\n", "is an HDF5 file, as Keras writes it; save the weights in PyTorch"}}};

// Empty for what is no regular file: to open a FIFO would wait for its writer.
std::string BeginOf(const std::string& path) {
  std::string begin(kBeginBytes, '\0');
  if (!fs::is_regular_file(path)) return "";
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  return begin;
}

// The names of the files, without a folder: the index may come from anyone.
std::set<std::string> PartsIn(const std::string& index) {
  const auto text = ReadRegularFile(index, kIndexBytesMax);
  if (!text.ok())
    throw std::runtime_error(index + ": " + std::string(text.status().message()) +
                             "; download it again");
  std::set<std::string> parts;
  try {
    const nlohmann::json json = ParseBoundedJson(*text);
    for (const auto& [tensor, part] : json.at("weight_map").items()) {
      const auto name = part.get<std::string>();
      if (name.empty() || fs::path(name).filename() != name || name.ends_with(kIndexEnd))
        throw std::runtime_error(index + ": " + JsonText(part) + " is no name of a file beside it");
      parts.insert(name);
    }
  } catch (const JsonError& error) {
    throw std::runtime_error(index + " " + error.what() + "; download it again");
  } catch (const nlohmann::json::exception&) {
    throw std::runtime_error(index +
                             " has no \"weight_map\" of tensors to files; download it again");
  }
  return parts;
}

}  // namespace

std::string WeightsIn(const std::string& folder) {
  for (const char* name : kWeightFiles) {
    const fs::path path = fs::path(folder) / name;
    if (fs::exists(path)) return path;
  }
  return "";
}

bool IsTorchOrIndex(const std::string& path) {
  return path.ends_with(kIndexEnd) || IsTorchFile(BeginOf(path));
}

SafetensorsFile OpenSafetensors(const std::string& path) {
  try {
    return SafetensorsFile(path);
  } catch (const SafetensorsError&) {
    const std::string begin = BeginOf(path);
    for (const OtherFile& other : kOtherFiles) {
      if (begin.starts_with(other.begin)) throw std::runtime_error(path + " " + other.sentence);
    }
    throw;
  }
}

NamedTensors ReadWeights(const std::string& path) {
  if (!fs::exists(path)) throw std::runtime_error(path + " is not there");
  if (!IsTorchOrIndex(path)) return OpenSafetensors(path).tensors();
  if (!path.ends_with(kIndexEnd)) return ReadStateDict(path);
  NamedTensors tensors;
  for (const std::string& part : PartsIn(path)) {
    const NamedTensors more = ReadWeights(fs::path(path).parent_path() / part);
    tensors.insert(tensors.end(), more.begin(), more.end());
  }
  return tensors;
}

}  // namespace ddprun
