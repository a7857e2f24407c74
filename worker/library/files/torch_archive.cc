// SPDX-License-Identifier: Apache-2.0
#include "worker/library/files/torch_archive.h"

#include <ATen/Functions.h>
#include <caffe2/serialize/inline_container.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "rendezvous/values/pickle.h"
#include "worker/library/files/mapped_file.h"
#include "worker/library/files/torch_pickle.h"

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

  std::string_view Text(std::uint64_t at, std::uint64_t size) const {
    return Part(at, size).bytes_;
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

template <class Visit>
void ForEachEntry(const Reader& directory, std::uint64_t entries, Visit visit) {
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < entries; ++i) {
    if (directory.Number(at, 4) != kEntrySignature) Damaged();
    const std::size_t name_bytes = directory.Number(at + 28, 2);
    visit(at, directory.Text(at + kEntryBytes, name_bytes));
    at += kEntryBytes + name_bytes + directory.Number(at + 30, 2) + directory.Number(at + 32, 2);
  }
}

// Throws std::runtime_error unless every entry of the zip archive is stored without compression and
// lies within the file, and all entries together claim no more bytes than the file has: then no
// reader of the archive can be made to allocate more than that. torch.save() writes only such
// archives. Format: PKWARE's APPNOTE.TXT 4.3.12 to 4.3.16, with the ZIP64 records.
void CheckZip(const Reader& file) {
  const Directory found = FindDirectory(file);
  const Reader directory = file.Part(found.offset, found.bytes);
  ForEachEntry(directory, found.entries, [](std::size_t, std::string_view name) {
    if (name.ends_with("/constants.pkl")) {
      throw std::runtime_error(
          "it holds a TorchScript program; pass it as --model-file, or save its state_dict()");
    }
  });
  std::uint64_t left = file.size();
  ForEachEntry(directory, found.entries, [&](std::size_t at, std::string_view) {
    const std::uint64_t size = EntrySize(directory, at);
    if (size > left) throw std::runtime_error("its records claim more bytes than the file has");
    left -= size;
  });
}

constexpr char kBigEndian[] = "its numbers are big-endian";
constexpr char kCutOff[] = "it is cut off";

using caffe2::serialize::PyTorchStreamReader;

NamedTensors ReadZip(const std::string& path, std::string_view file) {
  CheckZip(Reader(file));
  PyTorchStreamReader reader(path);
  const auto record = [&](const std::string& name) {
    const auto [bytes, size] = reader.getRecord(name);
    return std::string(static_cast<const char*>(bytes.get()), size);
  };
  if (reader.hasRecord("byteorder") && record("byteorder") != "little")
    throw std::runtime_error(kBigEndian);
  const std::string object = record("data.pkl");
  return TensorsOf(ParsePickle(object), [&](const std::string& key) {
    auto [data, size] = reader.getRecord("data/" + key);
    return at::Storage(at::Storage::use_byte_size_t(), size, std::move(data));
  });
}

// The format of torch.save() before PyTorch 1.6 (torch/serialization.py, _legacy_save): pickles of
// a magic number, a version, a dict about the system and the object, then of a list of the
// storages' keys, and then the storages in the list's order, each as the number of its elements
// (eight bytes) and they themselves.
constexpr std::string_view kStreamMagic = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.";
constexpr std::int64_t kStreamVersion = 1001;

// The pickle at the start of `bytes`, which are then those after it.
Pickle TakePickle(std::string_view& bytes) {
  Pickle pickle = ParsePickle(bytes);
  bytes.remove_prefix(pickle.size());
  return pickle;
}

bool IsBigEndian(const PickleValue& system) {
  const auto* const dict = system.As<PickleDict>();
  for (std::size_t i = 0; dict != nullptr && i < dict->items.size(); ++i) {
    const auto* const name = dict->items[i].first->As<std::string_view>();
    const auto* const little = dict->items[i].second->As<bool>();
    if (name != nullptr && *name == "little_endian" && little != nullptr) return !*little;
  }
  return false;
}

using StorageBytes = std::unordered_map<std::string, std::string_view>;

// Where the storages lie. Their types are only known from the object that refers to them.
StorageBytes FindStorages(const Pickle& object, const Pickle& keys, std::string_view bytes) {
  std::unordered_map<std::string_view, at::ScalarType> types;
  for (const PickleValue& value : object.values()) {
    const auto* const id = value.As<PicklePersistentId>();
    if (id == nullptr) continue;
    if (const auto storage = StorageIdOf(*id)) types.emplace(storage->key, storage->type);
  }
  StorageBytes storages;
  const auto* const list = keys.root().As<PickleList>();
  if (list == nullptr) throw std::runtime_error(kCutOff);
  for (const PickleValue* key : list->items) {
    const auto* const name = key->As<std::string_view>();
    const auto type = name == nullptr ? types.end() : types.find(*name);
    if (type == types.end()) throw std::runtime_error("it has a storage of no known type");
    if (bytes.size() < sizeof(std::uint64_t)) throw std::runtime_error(kCutOff);
    const std::uint64_t elements = Reader(bytes).Number(0, sizeof(std::uint64_t));
    bytes.remove_prefix(sizeof elements);
    const std::size_t size = c10::elementSize(type->second);
    if (elements > bytes.size() / size) throw std::runtime_error(kCutOff);
    storages.emplace(*name, bytes.substr(0, elements * size));
    bytes.remove_prefix(elements * size);
  }
  return storages;
}

NamedTensors ReadStream(std::string_view bytes) {
  bytes.remove_prefix(kStreamMagic.size());
  const Pickle version = TakePickle(bytes);
  const auto* const number = version.root().As<std::int64_t>();
  if (number == nullptr || *number != kStreamVersion)
    throw std::runtime_error("its version of the format is not known here");
  if (IsBigEndian(TakePickle(bytes).root())) throw std::runtime_error(kBigEndian);
  const Pickle object = TakePickle(bytes);
  const Pickle keys = TakePickle(bytes);
  const StorageBytes storages = FindStorages(object, keys, bytes);
  return TensorsOf(object, [&](const std::string& key) {
    const auto found = storages.find(key);
    if (found == storages.end()) throw std::runtime_error("it lacks the storage " + key);
    const auto size = static_cast<std::int64_t>(found->second.size());
    const at::Tensor copy = at::empty({size}, at::kByte);  // aligned, unlike the file's bytes
    std::memcpy(copy.mutable_data_ptr(), found->second.data(), found->second.size());
    return copy.storage();
  });
}

}  // namespace

bool IsTorchFile(std::string_view begin) {
  return begin.starts_with("PK") || begin.starts_with(kStreamMagic);
}

NamedTensors ReadTorchFile(const std::string& path) {
  const at::Tensor mapped = MapFile(path);
  const std::string_view bytes(static_cast<const char*>(mapped.const_data_ptr()), mapped.nbytes());
  return bytes.starts_with(kStreamMagic) ? ReadStream(bytes) : ReadZip(path, bytes);
}

}  // namespace ddprun
