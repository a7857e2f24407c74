// SPDX-License-Identifier: Apache-2.0
#include "worker/files/stored_zip.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string_view>

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

class Reader {
 public:
  explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}

  std::size_t size() const { return bytes_.size(); }
  std::uint64_t Number(std::size_t at, std::size_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) Damaged();
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < size; ++i)
      number |= std::uint64_t{static_cast<std::uint8_t>(bytes_[at + i])} << (8 * i);
    return number;
  }

 private:
  std::string bytes_;
};

class File {
 public:
  explicit File(const std::string& path) : stream_(path, std::ios::binary) {
    stream_.seekg(0, std::ios::end);
    if (!stream_) throw std::runtime_error("it cannot be read");
    size_ = static_cast<std::uint64_t>(stream_.tellg());
  }

  std::uint64_t size() const { return size_; }
  Reader Read(std::uint64_t at, std::uint64_t size) {
    if (at > size_ || size > size_ - at) Damaged();
    std::string bytes(size, '\0');
    stream_.seekg(static_cast<std::streamoff>(at));
    if (!stream_.read(bytes.data(), static_cast<std::streamsize>(size)))
      throw std::runtime_error("it cannot be read");
    return Reader(std::move(bytes));
  }

 private:
  std::ifstream stream_;
  std::uint64_t size_ = 0;
};

struct Directory {
  std::uint64_t entries;
  std::uint64_t bytes;
  std::uint64_t offset;
};

// Readers search backwards for the end record, past a comment; a file that is taken here has none.
Directory FindDirectory(File& file) {
  if (file.size() < kEndBytes) Damaged();
  const std::uint64_t end_at = file.size() - kEndBytes;
  const Reader end = file.Read(end_at, kEndBytes);
  if (end.Number(0, 4) != kEndSignature || end.Number(20, 2) != 0) Damaged();
  if (end_at >= kLocator64Bytes) {
    const Reader locator = file.Read(end_at - kLocator64Bytes, kLocator64Bytes);
    if (locator.Number(0, 4) == kLocator64Signature) {
      const Reader end64 = file.Read(locator.Number(8, 8), kEnd64Bytes);
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

}  // namespace

void CheckStoredZip(const std::string& path) {
  File file(path);
  const Directory found = FindDirectory(file);
  const Reader directory = file.Read(found.offset, found.bytes);
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

}  // namespace ddprun
