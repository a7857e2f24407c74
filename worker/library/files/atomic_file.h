// SPDX-License-Identifier: Apache-2.0
// A file that is seen whole or not at all, and a folder that a crash of the machine does not take.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace ddprun {

// Writes beside `path`, and takes its place at Commit(). Destroyed before, it leaves nothing
// behind. Throws std::runtime_error that names the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Does not throw, since archive writers call it from C code: the first error is kept for
  // Commit().
  void Write(const void* data, std::size_t size);

  // Everything is on the disk, under the name, when it returns.
  void Commit();

 private:
  [[noreturn]] void Fail(const char* what, int error) const;

  const std::string path_;
  const std::string temporary_;
  int fd_ = -1;
  int write_error_ = 0;
};

// Writes `text` as an AtomicFile.
void WriteFile(const std::string& path, std::string_view text);

// Gives the file `from` the second name `to`, in place of what has it, on the disk when it returns.
// False, and nothing has changed, where the file system has no such names.
bool LinkFile(const std::string& from, const std::string& to);

// As std::filesystem::create_directories; the names of the folders that it makes are on the disk
// when it returns. Without that a crash could take a folder with all that was synced in it.
std::error_code MakeFolder(const std::filesystem::path& path);

// For an output that a user named; AtomicFile replaces a link, as in a folder of its own. Either
// way a device, a FIFO or a stream of this process is written to as it is. Where the links of
// `path` lead: the file there is the one to replace. Throws std::runtime_error that names the path.
std::string UserPath(const std::string& path);

}  // namespace ddprun
