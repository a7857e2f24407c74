// SPDX-License-Identifier: Apache-2.0
// Faults of disks, descriptors and limits, for programs that a test starts. fault_shim.c has the
// rules' form. The target needs ddprun_use_faults().
#pragma once

#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "tests/testing/eventually.h"
#include "tests/testing/paths.h"

namespace ddprun {

// Switches faults on and off in programs that were started with variables().
class Faults {
 public:
  // The control file is kept in `folder`, which must be absolute and outlive the programs.
  explicit Faults(const std::string& folder) : file_(folder + "/faults") {
    // LD_PRELOAD takes a blank in the build folder's path for the end of a name.
    std::error_code there_already;
    std::filesystem::create_symlink(BuildPath("tests/libfault_shim.so"), file_ + ".so",
                                    there_already);
    Clear();
  }
  ~Faults() { Clear(); }  // so that nothing hangs longer than the test

  std::map<std::string, std::string> variables() const {
    return {{"LD_PRELOAD", file_ + ".so"}, {"DDPRUN_FAULTS", file_}};
  }

  // These rules and no others, from each program's next call on.
  void Set(const std::vector<std::string>& rules) {
    const std::string next = file_ + ".next";
    {
      std::ofstream out(next);
      for (const std::string& rule : rules) out << rule << '\n';
    }
    std::filesystem::rename(next, file_);
  }
  void Clear() { Set({}); }

  // "PID CALL ACTION PATH", a line for each call that was affected.
  std::string Hits() const {
    std::ifstream file(file_ + ".hits");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // False: no hit has had `text` in time.
  bool WaitForHit(const std::string& text) const {
    return Eventually([&] { return Hits().find(text) != std::string::npos; });
  }

 private:
  const std::string file_;
};

// The command with a limit of its own, as prlimit(1) has them: "--fsize=4096", "--nofile=64:64".
inline std::vector<std::string> WithLimit(const std::string& limit,
                                          const std::vector<std::string>& argv) {
  std::vector<std::string> all = {"prlimit", limit, "--"};
  all.insert(all.end(), argv.begin(), argv.end());
  return all;
}

// The highest descriptor that a process has open; -1: none, or there is no such process.
inline int HighestDescriptor(pid_t pid) {
  int highest = -1;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", error)) {
    highest = std::max(highest, std::stoi(entry.path().filename().string()));
  }
  return highest;
}

// The descriptors below `limit` are all that a running process may have.
inline rlimit LimitDescriptors(pid_t pid, rlim_t limit) {
  rlimit before{};
  if (prlimit(pid, RLIMIT_NOFILE, nullptr, &before) != 0) throw std::runtime_error("prlimit");
  const rlimit after{.rlim_cur = limit, .rlim_max = before.rlim_max};
  if (prlimit(pid, RLIMIT_NOFILE, &after, nullptr) != 0) throw std::runtime_error("prlimit");
  return before;
}

// A disk of so many bytes, which needs root.
class SmallDisk {
 public:
  SmallDisk(std::string folder, std::uint64_t bytes) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = mount("ddprun-test", folder_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }  // else: skip the test
  bool Resize(std::uint64_t bytes) const {
    const std::string size = "size=" + std::to_string(bytes);
    return mount("none", folder_.c_str(), "tmpfs", MS_REMOUNT, size.c_str()) == 0;
  }
  const std::string& folder() const { return folder_; }

 private:
  const std::string folder_;
  bool mounted_ = false;
};

}  // namespace ddprun
