// SPDX-License-Identifier: Apache-2.0
// A file that grows by whole records and never stops a training: a full disk costs a bounded number
// of records, and never leaves half of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

class AppendFile {
 public:
  // Records that wait for the disk; more are dropped.
  static constexpr std::size_t kPendingBytes = 1 << 20;

  AppendFile() = default;
  ~AppendFile();  // without a flush
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Opens or makes `path` and cuts it to `kept_bytes`, if it is longer. Returns 0 or an errno:
  // ESPIPE for a FIFO or a device, which has no place to write at.
  int Open(const std::string& path, std::uint64_t kept_bytes);

  // Kept in memory until the next Flush(); dropped where too much is.
  void Add(std::string_view record);

  // Writes what was added. Returns 0 or an errno; then the file ends with a whole record, and the
  // next call tries again.
  int Flush();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;  // of the whole records in the file
  std::string pending_;
};

}  // namespace ddprun
