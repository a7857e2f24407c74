// SPDX-License-Identifier: Apache-2.0
// A folder for the files of one test, gone with it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ddprun {

class TempFiles {
 public:
  TempFiles() {
    std::string pattern = ::testing::TempDir() + "ddprun-worker-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~TempFiles() { std::filesystem::remove_all(folder_); }
  TempFiles(const TempFiles&) = delete;
  TempFiles& operator=(const TempFiles&) = delete;

  std::string Path(const std::string& name) const { return folder_ / name; }
  std::string folder() const { return folder_; }

  std::string Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return Path(name);
  }

 private:
  std::filesystem::path folder_;
};

// What `call` throws as an Error, or a failure.
template <typename Error, typename Call>
std::string MessageOf(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace ddprun
