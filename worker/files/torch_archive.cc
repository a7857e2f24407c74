// SPDX-License-Identifier: Apache-2.0
#include "worker/files/torch_archive.h"

#include <ATen/Functions.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "rendezvous/values/pickle.h"
#include "worker/files/mapped_file.h"

namespace ddprun {
namespace {

constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kLocator64Bytes = 20;
constexpr std::size_t kEntryBytes = 46;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocator64Signature = 0x07064b50;
constexpr std::uint32_t kEntrySignature = 0x02014b50;
constexpr std::uint16_t kExtra64 = 1;
constexpr std::uint64_t kIn64 = 0xffffffff;  // the number is in the ZIP64 record instead

[[noreturn]] void Damaged() { throw std::runtime_error("its zip directory is damaged"); }

// Little-endian numbers of a mapped file.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  std::size_t size() const { return bytes_.size(); }

  std::uint64_t Number(std::uint64_t at, std::size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) Damaged();
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < size; ++i)
      number |= std::uint64_t{static_cast<std::uint8_t>(bytes_[at + i])} << (8 * i);
    return number;
  }

  Reader Part(std::uint64_t at, std::uint64_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) Damaged();
    return Reader(bytes_.substr(at, size));
  }

 private:
  std::string_view bytes_;
};

struct Directory {
  std::uint64_t entries;
  std::uint64_t bytes;
  std::uint64_t offset;
};

// Readers search backwards for the end record, past a comment; a file that is taken here has none.
Directory FindDirectory(const Reader& file) {
  if (file.size() < kEndBytes) Damaged();
  const std::uint64_t end_at = file.size() - kEndBytes;
  const Reader end = file.Part(end_at, kEndBytes);
  if (end.Number(0, 4) != kEndSignature || end.Number(20, 2) != 0) Damaged();
  if (end_at >= kLocator64Bytes) {
    const Reader locator = file.Part(end_at - kLocator64Bytes, kLocator64Bytes);
    if (locator.Number(0, 4) == kLocator64Signature) {
      const Reader end64 = file.Part(locator.Number(8, 8), kEnd64Bytes);
      if (end64.Number(0, 4) != kEnd64Signature) Damaged();
      return {end64.Number(32, 8), end64.Number(40, 8), end64.Number(48, 8)};
    }
  }
  return {end.Number(10, 2), end.Number(12, 4), end.Number(16, 4)};
}

// The uncompressed size of the entry at `at`: 32 bits, or 64 in its extra field.
std::uint64_t EntrySize(const Reader& directory, std::size_t at) {
  const std::uint64_t compressed = directory.Number(at + 20, 4);
  const std::uint64_t size = directory.Number(at + 24, 4);
  if (directory.Number(at + 10, 2) != 0) throw std::runtime_error("its records are compressed");
  if (size != kIn64) {
    if (compressed != size && compressed != kIn64) Damaged();
    return size;
  }
  std::size_t extra = at + kEntryBytes + directory.Number(at + 28, 2);
  const std::size_t extra_end = extra + directory.Number(at + 30, 2);
  while (extra + 4 <= extra_end) {
    const std::size_t bytes = directory.Number(extra + 2, 2);
    if (directory.Number(extra, 2) == kExtra64 && bytes >= 8) return directory.Number(extra + 4, 8);
    extra += 4 + bytes;
  }
  Damaged();
}

// Throws std::runtime_error unless every entry of the zip archive is stored without compression and
// lies within the file, and all entries together claim no more bytes than the file has: then no
// reader of the archive can be made to allocate more than that. torch.save() writes only such
// archives. Format: PKWARE's APPNOTE.TXT 4.3.12 to 4.3.16, with the ZIP64 records.
void CheckStoredZip(const std::string& path) {
  const at::Tensor mapped = MapFile(path);
  const Reader file({static_cast<const char*>(mapped.const_data_ptr()), mapped.nbytes()});
  const Directory found = FindDirectory(file);
  const Reader directory = file.Part(found.offset, found.bytes);
  std::uint64_t left = file.size();
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < found.entries; ++i) {
    if (directory.Number(at, 4) != kEntrySignature) Damaged();
    const std::uint64_t size = EntrySize(directory, at);
    if (size > left) throw std::runtime_error("its records claim more bytes than the file has");
    left -= size;
    at += kEntryBytes + directory.Number(at + 28, 2) + directory.Number(at + 30, 2) +
          directory.Number(at + 32, 2);
  }
}

using caffe2::serialize::PyTorchStreamReader;

constexpr std::size_t kDimensionsMax = 64;

struct StorageType {
  std::string_view name;
  at::ScalarType type;
};
constexpr std::array<StorageType, 10> kStorageTypes = {{{"DoubleStorage", at::kDouble},
                                                        {"FloatStorage", at::kFloat},
                                                        {"HalfStorage", at::kHalf},
                                                        {"BFloat16Storage", at::kBFloat16},
                                                        {"LongStorage", at::kLong},
                                                        {"IntStorage", at::kInt},
                                                        {"ShortStorage", at::kShort},
                                                        {"CharStorage", at::kChar},
                                                        {"ByteStorage", at::kByte},
                                                        {"BoolStorage", at::kBool}}};

[[noreturn]] void NotATensor() {
  throw std::runtime_error(
      "it holds something else than names and tensors; save "
      "model.state_dict()");
}

template <class T>
const T& Get(const PickleValue* value) {
  const T* const found = value->As<T>();
  if (found == nullptr) NotATensor();
  return *found;
}

std::size_t Count(const PickleValue* value) {
  const std::int64_t count = Get<std::int64_t>(value);
  if (count < 0) throw std::runtime_error("a size or an offset in it is negative");
  return static_cast<std::size_t>(count);
}

std::vector<std::int64_t> Counts(const PickleValue* value) {
  const auto& items = Get<PickleTuple>(value).items;
  if (items.size() > kDimensionsMax)
    throw std::runtime_error("a tensor in it has " + std::to_string(items.size()) + " dimensions");
  std::vector<std::int64_t> counts;
  for (const PickleValue* item : items) counts.push_back(static_cast<std::int64_t>(Count(item)));
  return counts;
}

// Elements of a storage that a view of it needs; nothing where that is beyond 64 bits.
std::optional<std::size_t> ElementsNeeded(std::size_t offset, at::IntArrayRef sizes,
                                          at::IntArrayRef strides) {
  std::size_t elements = 1;
  std::size_t last = offset;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto size = static_cast<std::size_t>(sizes[i]);
    std::size_t reach = 0;
    if (__builtin_mul_overflow(elements, std::max<std::size_t>(size, 1), &elements) ||
        __builtin_mul_overflow(std::max<std::size_t>(size, 1) - 1,
                               static_cast<std::size_t>(strides[i]), &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return std::nullopt;
    }
  }
  if (elements > INT64_MAX || last >= INT64_MAX) return std::nullopt;
  if (std::count(sizes.begin(), sizes.end(), 0) > 0) return 0;
  // A view whose elements share their place can be far larger than what it shows.
  return std::max(last, elements - 1) + 1;
}

struct Storage {
  at::Storage bytes;
  at::ScalarType type = at::kFloat;
};

class Archive {
 public:
  explicit Archive(const std::string& path) : reader_(path) {
    if (reader_.hasRecord("byteorder") && Record("byteorder") != "little")
      throw std::runtime_error("its numbers are big-endian");
  }

  std::string Record(const std::string& name) {
    const auto [bytes, size] = reader_.getRecord(name);
    return {static_cast<const char*>(bytes.get()), size};
  }

  at::Tensor Tensor(const PickleValue* value) {
    const auto& call = Get<PickleCall>(value);
    const auto& arguments = call.arguments->items;
    if (call.function->IsGlobal("torch._utils", "_rebuild_parameter") && !arguments.empty())
      return RebuildTensor(Get<PickleCall>(arguments[0]));
    return RebuildTensor(call);
  }

 private:
  // (storage, storage_offset, size, stride, requires_grad, backward_hooks)
  at::Tensor RebuildTensor(const PickleCall& call) {
    const auto& arguments = call.arguments->items;
    if (!call.function->IsGlobal("torch._utils", "_rebuild_tensor_v2") || arguments.size() < 4)
      NotATensor();
    const Storage& storage = FindStorage(Get<PicklePersistentId>(arguments[0]).id);
    const std::size_t offset = Count(arguments[1]);
    const std::vector<std::int64_t> sizes = Counts(arguments[2]);
    const std::vector<std::int64_t> strides = Counts(arguments[3]);
    if (sizes.size() != strides.size()) NotATensor();
    const auto needed = ElementsNeeded(offset, sizes, strides);
    const std::size_t there = storage.bytes.nbytes() / c10::elementSize(storage.type);
    if (!needed || *needed > there)
      throw std::runtime_error("a tensor in it reaches beyond its storage");
    at::Tensor tensor = at::empty({0}, storage.type);
    if (*needed == 0) return tensor.resize_(sizes);
    return tensor.set_(storage.bytes, static_cast<std::int64_t>(offset), sizes, strides);
  }

  // ("storage", torch.FloatStorage, key, location, elements)
  const Storage& FindStorage(const PickleValue* id) {
    const auto& parts = Get<PickleTuple>(id).items;
    if (parts.size() != 5 || Get<std::string_view>(parts[0]) != "storage") NotATensor();
    const at::ScalarType type = TypeOf(Get<PickleGlobal>(parts[1]));
    const std::string key(Get<std::string_view>(parts[2]));
    auto found = storages_.find(key);
    if (found == storages_.end()) {
      auto [bytes, size] = reader_.getRecord("data/" + key);
      found =
          storages_
              .emplace(key,
                       Storage{at::Storage(at::Storage::use_byte_size_t(), size, std::move(bytes)),
                               type})
              .first;
    }
    const Storage& storage = found->second;
    std::size_t bytes = 0;
    if (storage.type != type ||
        __builtin_mul_overflow(Count(parts[4]), c10::elementSize(type), &bytes) ||
        bytes != storage.bytes.nbytes()) {
      throw std::runtime_error("its record data/" + key + " is not of the size that it claims");
    }
    return storage;
  }

  static at::ScalarType TypeOf(const PickleGlobal& global) {
    for (const StorageType& known : kStorageTypes) {
      if (global.module == "torch" && global.name == known.name) return known.type;
    }
    throw std::runtime_error(c10::str("it has tensors of ", global.module, ".", global.name,
                                      ", which is not known here"));
  }

  PyTorchStreamReader reader_;
  std::unordered_map<std::string, Storage> storages_;
};

}  // namespace

NamedTensors ReadTorchArchive(const std::string& path) {
  CheckStoredZip(path);
  Archive archive(path);
  const std::string bytes = archive.Record("data.pkl");
  const Pickle pickle = ParsePickle(bytes);
  const auto* const dict = pickle.root().As<PickleDict>();
  if (dict == nullptr)
    throw std::runtime_error("it holds no dict; save model.state_dict(), not the model");
  NamedTensors tensors;
  for (const auto& [name, value] : dict->items)
    tensors.emplace_back(Get<std::string_view>(name), archive.Tensor(value));
  return tensors;
}

}  // namespace ddprun
