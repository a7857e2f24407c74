// SPDX-License-Identifier: Apache-2.0
// A log file, or several files with rotation. Used by one thread, which the disk may block.
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
  // `path`, and rotated files `path`.1, .2, ... in order. Existing files are not overwritten.
  LogFile(std::string path, const LogRotation& rotation)
      : path_(std::move(path)), rotation_(rotation) {}
  // An open file that others may write to as well. Never rotated or closed.
  struct Borrowed {
    int fd = -1;
  };
  LogFile(std::string name, Borrowed borrowed) : path_(std::move(name)), fd_(borrowed.fd) {}
  // A file that belongs to this run alone: Open() removes that of an earlier run, and Write()
  // creates the file.
  struct Replaced {};
  LogFile(std::string path, Replaced) : path_(std::move(path)), replaces_(true) {}

  const std::string& path() const { return path_; }

  // Also creates its folder. Appends to an existing file.
  absl::Status Open();

  // Opens the file if necessary. `written`: how many of `bytes` were written, also on failure.
  absl::Status Write(std::string_view bytes, std::size_t& written);

 private:
  absl::Status OpenToWrite();
  absl::Status WriteAll(std::string_view bytes, std::size_t& written);
  void FindAside();
  void PutAside();

  const std::string path_;
  LogRotation rotation_;
  bool replaces_ = false;  // the file of an earlier run is still to be removed
  OwnedFd file_;
  int fd_ = -1;  // that of file_, or a borrowed one
  std::uint64_t size_ = 0;
  bool at_line_start_ = true;
  int aside_first_ = 1;  // the oldest rotated file
  int aside_next_ = 1;
};

}  // namespace ddprun
