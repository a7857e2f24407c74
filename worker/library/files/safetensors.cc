// SPDX-License-Identifier: Apache-2.0
#include "worker/library/files/safetensors.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "proto/json_text.h"
#include "worker/library/files/atomic_file.h"
#include "worker/library/files/bounded_json.h"
#include "worker/library/files/mapped_file.h"

namespace ddprun {
namespace {

using Json = nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kHeadAlignment = 64;

struct Type {
  const char* name;
  at::ScalarType type;
};
constexpr std::array<Type, 10> kTypes = {{{"F64", at::kDouble},
                                          {"F32", at::kFloat},
                                          {"F16", at::kHalf},
                                          {"BF16", at::kBFloat16},
                                          {"I64", at::kLong},
                                          {"I32", at::kInt},
                                          {"I16", at::kShort},
                                          {"I8", at::kChar},
                                          {"U8", at::kByte},
                                          {"BOOL", at::kBool}}};

// One tensor's entry in the header.
struct Entry {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::size_t begin = 0;  // from the end of the header
  std::size_t end = 0;
};

void Require(bool holds, const std::string& sentence) {
  if (!holds) throw SafetensorsError(sentence);
}

Json ParseHeader(std::string_view text) {
  try {
    Json header = ParseBoundedJson(text);
    Require(header.is_object(), "its header is not a JSON object");
    return header;
  } catch (const JsonError& error) {
    throw SafetensorsError(std::string("its header ") + error.what());
  }
}

at::ScalarType ParseType(const Json& entry, const std::string& name) {
  const Json& type = entry.at("dtype");
  Require(type.is_string(), "tensor '" + name + "' has no dtype");
  for (const Type& known : kTypes) {
    if (type.get_ref<const std::string&>() == known.name) return known.type;
  }
  throw SafetensorsError("tensor '" + name + "' is of dtype " + type.get<std::string>() +
                         ", which is not known here");
}

std::vector<std::size_t> ParseNumbers(const Json& array, const std::string& name) {
  Require(array.is_array() && array.size() <= kSafetensorsDimensionsMax,
          "tensor '" + name + "' has no proper shape or offsets");
  std::vector<std::size_t> numbers;
  for (const Json& number : array) {
    Require(number.is_number_unsigned(), "tensor '" + name + "' has no proper shape or offsets");
    numbers.push_back(number.get<std::size_t>());
  }
  return numbers;
}

Entry ParseEntry(const std::string& name, const Json& json) {
  const bool complete = json.is_object() && json.size() == 3 && json.contains("dtype") &&
                        json.contains("shape") && json.contains("data_offsets");
  Require(complete, "tensor '" + name + "' has not dtype, shape and data_offsets alone");
  Entry entry{.name = name, .type = ParseType(json, name)};
  std::size_t bytes = c10::elementSize(entry.type);
  std::size_t stride = bytes;  // what LibTorch computes, also beside a size of 0
  bool fits = true;
  for (const std::size_t size : ParseNumbers(json.at("shape"), name)) {
    fits &= !__builtin_mul_overflow(stride, std::max<std::size_t>(size, 1), &stride) &&
            stride <= INT64_MAX;
    bytes *= size;
    entry.sizes.push_back(static_cast<std::int64_t>(size));
  }
  const std::vector<std::size_t> offsets = ParseNumbers(json.at("data_offsets"), name);
  Require(
      fits && offsets.size() == 2 && offsets[0] <= offsets[1] && offsets[1] - offsets[0] == bytes,
      "the offsets of tensor '" + name + "' do not fit its shape");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  return entry;
}

SafetensorsMetadata ParseMetadata(const Json& json) {
  Require(json.is_object(), "its metadata is not a JSON object");
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : json.items()) {
    Require(value.is_string(), "'" + key + "' of its metadata is not a text");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Every byte belongs to one tensor: data in a gap would go unnoticed, and tensors that overlap
// cannot be trusted.
void CheckCover(std::vector<Entry>& entries, std::size_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::size_t covered = 0;
  for (const Entry& entry : entries) {
    Require(entry.begin == covered,
            "the bytes of tensor '" + entry.name + "' do not follow those of the one before");
    covered = entry.end;
  }
  Require(covered <= data_bytes, "it is cut off: " + std::to_string(covered - data_bytes) +
                                     " bytes of its tensors are missing");
  Require(covered == data_bytes,
          std::to_string(data_bytes - covered) + " bytes at its end belong to no tensor");
}

// A view of the file, or a copy where the file has it at an odd place.
at::Tensor TensorOf(const at::Tensor& file, std::size_t data, const Entry& entry) {
  if (entry.begin == entry.end) return at::empty(entry.sizes, at::TensorOptions(entry.type));
  const std::size_t begin = data + entry.begin;
  at::Tensor bytes = file.narrow(0, static_cast<std::int64_t>(begin),
                                 static_cast<std::int64_t>(entry.end - entry.begin));
  if (begin % c10::elementSize(entry.type) != 0) bytes = bytes.clone();
  return bytes.view(entry.type).view(entry.sizes);
}

at::Tensor Map(const std::string& path) {
  try {
    return MapFile(path);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("cannot open " + path + ": " + error.what());
  }
}

const char* NameOf(at::ScalarType type, const std::string& tensor) {
  for (const Type& known : kTypes) {
    if (known.type == type) return known.name;
  }
  throw std::invalid_argument("tensor '" + tensor + "' is of type " + c10::toString(type) +
                              ", which a safetensors file cannot hold");
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) {
  const at::Tensor file = Map(path);
  const std::string_view bytes(static_cast<const char*>(file.const_data_ptr()), file.nbytes());
  try {
    std::uint64_t length = 0;
    Require(bytes.size() >= kLengthBytes, "it has only " + std::to_string(bytes.size()) + " bytes");
    std::memcpy(&length, bytes.data(), kLengthBytes);
    Require(length <= kSafetensorsHeaderBytesMax && length <= bytes.size() - kLengthBytes,
            "its header would be of " + std::to_string(length) + " bytes");
    const std::size_t data = kLengthBytes + length;
    head_ = bytes.substr(0, data);
    const Json header = ParseHeader(std::string_view(head_).substr(kLengthBytes));
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadata) {
        metadata_ = ParseMetadata(value);
      } else {
        entries.push_back(ParseEntry(name, value));
      }
    }
    CheckCover(entries, bytes.size() - data);
    for (const Entry& entry : entries)
      tensors_.emplace_back(entry.name, TensorOf(file, data, entry));
  } catch (const SafetensorsError& error) {
    throw SafetensorsError(path + " is not a whole safetensors file: " + error.what() +
                           "; fetch or write it again");
  }
}

SafetensorsLayout LayOutSafetensors(const NamedTensors& tensors,
                                    const SafetensorsMetadata& metadata) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tensors[a].second.element_size() > tensors[b].second.element_size();
  });
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  SafetensorsLayout layout;
  std::size_t offset = 0;
  for (const std::size_t index : order) {
    const auto& [name, tensor] = tensors[index];
    if (name == kMetadata || header.contains(name)) {
      throw std::invalid_argument("there cannot be another tensor of the name '" + name +
                                  "' in a safetensors file");
    }
    const std::size_t bytes = tensor.nbytes();
    header[name] = {{"dtype", NameOf(tensor.scalar_type(), name)},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, offset + bytes}}};
    layout.places.push_back({index, offset, bytes});
    offset += bytes;
  }
  std::string text = JsonText(header);
  const std::size_t used = (kLengthBytes + text.size()) % kHeadAlignment;
  if (used != 0) text.append(kHeadAlignment - used, ' ');
  const std::uint64_t length = text.size();
  layout.head.assign(reinterpret_cast<const char*>(&length), kLengthBytes);
  layout.head += text;
  for (auto& place : layout.places) place.offset += layout.head.size();
  layout.file_bytes = layout.head.size() + offset;
  return layout;
}

void WriteSafetensors(const std::string& path, const NamedTensors& tensors,
                      const SafetensorsMetadata& metadata) {
  const SafetensorsLayout layout = LayOutSafetensors(tensors, metadata);
  AtomicFile file(path);
  file.Write(layout.head.data(), layout.head.size());
  for (const auto& place : layout.places) {
    const at::Tensor plain = tensors[place.tensor].second.detach().to(at::kCPU).contiguous();
    file.Write(plain.const_data_ptr(), place.bytes);
  }
  file.Commit();
}

}  // namespace ddprun
