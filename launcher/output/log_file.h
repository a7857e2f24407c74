// SPDX-License-Identifier: Apache-2.0
// One log as a file, or as several where it is rotated. Used by one thread, which may be held up by
// the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "launcher/options/log_specs.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

class LogFile {
 public:
  // `path`, and `path`.1, .2, ... in the order in which they were put aside. Nothing that is there
  // is overwritten.
  LogFile(std::string path, const LogRotation& rotation)
      : path_(std::move(path)), rotation_(rotation) {}
  // A file that is open, to which others may write too. Not rotated, not closed.
  struct Borrowed {
    int fd = -1;
  };
  LogFile(std::string name, Borrowed borrowed) : path_(std::move(name)), fd_(borrowed.fd) {}
  // A file that belongs to this run alone: Open() removes what an earlier run has left under that
  // name, and Write() makes the file.
  struct Replaced {};
  LogFile(std::string path, Replaced) : path_(std::move(path)), replaces_(true) {}

  const std::string& path() const { return path_; }

  // Makes its folder, too. What is in the file is kept and appended to. The status: why it cannot
  // be.
  absl::Status Open();

  // Opens the file if it is not. `written` is how much of `bytes` has become part of it, also where
  // the disk has refused the rest.
  absl::Status Write(std::string_view bytes, std::size_t& written);

 private:
  absl::Status OpenToWrite();
  absl::Status WriteAll(std::string_view bytes, std::size_t& written);
  void FindAside();
  void PutAside();

  const std::string path_;
  LogRotation rotation_;
  bool replaces_ = false;  // what is there is still to be removed
  OwnedFd file_;
  int fd_ = -1;  // file_'s, or another's
  std::uint64_t size_ = 0;
  bool at_line_start_ = true;
  int aside_first_ = 1;  // the oldest that is there
  int aside_next_ = 1;
};

}  // namespace ddprun
