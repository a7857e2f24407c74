// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/checkpoint_file.h"

#include <ATen/DeviceGuard.h>
#include <ATen/Functions.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "proto/json_text.h"
#include "worker/library/base/text.h"
#include "worker/library/checkpoint/finite_values.h"
#include "worker/library/checkpoint/header_fields.h"
#include "worker/library/files/bounded_json.h"
#include "worker/library/files/crc32c.h"
#include "worker/library/files/safetensors.h"

namespace ddprun {
namespace {

using Json = nlohmann::json;

constexpr char kFormatKey[] = "format";
constexpr char kFormat[] = "ddprun-checkpoint-1";
constexpr char kAboutKey[] = "ddprun";
constexpr char kChecksumsKey[] = "crc32c";
constexpr char kChecksumTensor[] = "checksum";
constexpr std::size_t kReadingThreadsMax = 8;
constexpr std::size_t kBytesOfAThread = 4 << 20;  // fewer are not worth one
// Copied and summed up piece by piece, so that a piece is still in the cache for the sum.
constexpr std::size_t kPieceBytes = 128 << 10;

// rows x columns in `in` become columns x rows in `out`.
template <typename Element>
void Transpose(const char* in, std::int64_t rows, std::int64_t columns, char* out) {
  const auto* from = reinterpret_cast<const Element*>(in);
  auto* to = reinterpret_cast<Element*>(out);
  for (std::int64_t column = 0; column < columns; ++column) {
    for (std::int64_t row = 0; row < rows; ++row) *to++ = from[row * columns + column];
  }
}

// Channels-last weights in C order. False for elements of other sizes.
bool CopyChannelsLast(const at::Tensor& tensor, char* out) {
  const std::int64_t pixels = tensor.size(2) * tensor.size(3);
  const std::int64_t channels = tensor.size(1);
  const std::size_t element = tensor.element_size();
  const std::size_t bytes = static_cast<std::size_t>(pixels * channels) * element;
  if (element != 2 && element != 4) return false;
  const auto transpose = element == 4 ? Transpose<std::uint32_t> : Transpose<std::uint16_t>;
  const char* in = static_cast<const char*>(tensor.const_data_ptr());
  for (std::int64_t i = 0; i < tensor.size(0); ++i, in += bytes, out += bytes)
    transpose(in, pixels, channels, out);
  return true;
}

// Puts the tensor's values, in C order, to `out`; returns their checksum.
std::uint32_t CopyAndSum(const at::Tensor& given, char* out) {
  const torch::NoGradGuard no_grad;
  // The calling thread may have another current device, on which CUDA would make a context.
  const c10::DeviceGuard on_device(given.device());
  const std::size_t bytes = given.nbytes();
  if (given.is_cpu() && given.is_contiguous()) {
    const char* in = static_cast<const char*>(given.const_data_ptr());
    std::uint32_t sum = 0;
    for (std::size_t done = 0; done < bytes; done += kPieceBytes) {
      const std::size_t piece = std::min(kPieceBytes, bytes - done);
      std::memcpy(out + done, in + done, piece);
      sum = Crc32c(out + done, piece, sum);
    }
    return sum;
  }
  // A device that put the values into C order would need memory, of which it may have none left.
  const at::Tensor tensor = given.is_contiguous() ? given.detach() : given.detach().cpu();
  const bool channels_last =
      tensor.is_cpu() && tensor.dim() == 4 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
  if (!channels_last || !CopyChannelsLast(tensor, out))
    at::from_blob(out, tensor.sizes(), at::TensorOptions(tensor.scalar_type())).copy_(tensor);
  return Crc32c(out, bytes);
}

SafetensorsLayout LayOut(const NamedTensors& tensors, const Json& about, const Json& sums) {
  return LayOutSafetensors(
      tensors,
      {{kFormatKey, kFormat}, {kAboutKey, JsonText(about)}, {kChecksumsKey, JsonText(sums)}});
}

const std::string& Text(const SafetensorsMetadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end())
    throw CheckpointError(std::string("its metadata have no '") + key + "'");
  return found->second;
}

void Compare(const std::string& what, const std::string& is, const std::string& should_be) {
  if (is != should_be)
    throw CheckpointError("the checksum of " + what + " is " + is + " instead of " + should_be);
}

// Before anything in the header is believed.
void CheckHeader(const SafetensorsFile& file) {
  if (!file.metadata().contains(kFormatKey) || file.tensors().empty() ||
      file.tensors().back().first != kChecksumTensor) {
    throw CheckpointError("it is no checkpoint");
  }
  const at::Tensor& tensor = file.tensors().back().second;
  std::uint32_t should_be = 0;
  if (tensor.nbytes() != sizeof should_be) throw CheckpointError("it is no checkpoint");
  std::memcpy(&should_be, tensor.const_data_ptr(), sizeof should_be);
  Compare("its header", Hex(Crc32c(file.head().data(), file.head().size())), Hex(should_be));
  if (Text(file.metadata(), kFormatKey) != kFormat) {
    throw CheckpointError("it is of the format '" + Text(file.metadata(), kFormatKey) +
                          "', this program reads " + kFormat);
  }
}

// Every thread takes the next tensor that none has taken.
std::vector<std::uint32_t> SumUp(const NamedTensors& tensors) {
  std::vector<std::uint32_t> sums(tensors.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < tensors.size(); i = next++)
      sums[i] = Crc32c(tensors[i].second.const_data_ptr(), tensors[i].second.nbytes());
  };
  {
    std::size_t bytes = 0;
    for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
    const std::size_t wanted = std::min({std::size_t{std::thread::hardware_concurrency()},
                                         kReadingThreadsMax, bytes / kBytesOfAThread});
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < wanted; ++i) threads.emplace_back(work);
    work();
  }
  return sums;
}

constexpr JsonLimits kLimits{.depth = 16};

Snapshot Check(const SafetensorsFile& file) {
  CheckHeader(file);
  Snapshot snapshot{file.tensors(), ParseBoundedJson(Text(file.metadata(), kAboutKey), kLimits)};
  snapshot.tensors.pop_back();
  CheckHeaderFields(HeaderFields(snapshot.about));
  const Json checksums = ParseBoundedJson(Text(file.metadata(), kChecksumsKey), kLimits);
  const HeaderFields expected(checksums, kChecksumsKey);
  const std::vector<std::uint32_t> sums = SumUp(snapshot.tensors);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::string& name = snapshot.tensors[i].first;
    Compare("tensor '" + name + "'", Hex(sums[i]), expected.Text(name));
  }
  return snapshot;
}

}  // namespace

void CheckpointImage::Fill(const Snapshot& snapshot) {
  NamedTensors tensors = snapshot.tensors;
  const at::Tensor checksum = at::zeros({4}, at::kByte);
  tensors.emplace_back(kChecksumTensor, checksum);
  // First with no checksums, for the places: they are of the same length.
  Json sums = Json::object();
  for (const auto& [name, tensor] : snapshot.tensors) sums[name] = Hex(0);
  SafetensorsLayout layout = LayOut(tensors, snapshot.about, sums);
  if (!memory_.defined() || memory_.nbytes() < layout.file_bytes)
    memory_ = at::empty({static_cast<std::int64_t>(layout.file_bytes)}, at::kByte);
  char* const bytes = static_cast<char*>(memory_.data_ptr());
  places_.clear();
  for (const auto& place : layout.places) {
    const auto& [name, tensor] = tensors[place.tensor];
    const std::uint32_t sum = CopyAndSum(tensor, bytes + place.offset);
    places_.push_back({name, tensor.scalar_type(), place.offset, tensor.nbytes()});
    if (place.tensor < snapshot.tensors.size()) sums[name] = Hex(sum);
  }
  layout = LayOut(tensors, snapshot.about, sums);
  std::memcpy(bytes, layout.head.data(), layout.head.size());
  const std::uint32_t sum = Crc32c(layout.head.data(), layout.head.size());
  std::memcpy(bytes + layout.places.back().offset, &sum, sizeof sum);
  size_ = layout.file_bytes;
}

std::string CheckpointImage::NotFinite() const {
  for (const Place& place : places_) {
    if (!AllFinite(bytes() + place.offset, place.bytes, place.type)) return place.name;
  }
  return "";
}

DamagedCheckpoint::DamagedCheckpoint(const std::string& path, const std::string& fact)
    : CheckpointError("checkpoint " + path + " is damaged or none: " + fact) {}

Snapshot ReadCheckpoint(const std::string& path) {
  try {
    return Check(SafetensorsFile(path));
  } catch (const CheckpointError& error) {
    throw DamagedCheckpoint(path, error.what());
  } catch (const HeaderError& error) {
    throw DamagedCheckpoint(path, error.what());
  } catch (const JsonError& error) {
    throw DamagedCheckpoint(path, std::string("its metadata ") + error.what());
  } catch (const std::runtime_error& error) {
    throw CheckpointError(error.what());
  }
}

}  // namespace ddprun
