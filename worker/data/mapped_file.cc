// SPDX-License-Identifier: Apache-2.0
#include "worker/data/mapped_file.h"

#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "worker/data/dataset.h"

namespace ddprun {

at::Tensor MappedFile::View(std::int64_t offset, at::IntArrayRef sizes,
                            at::IntArrayRef strides) const {
  auto* begin = const_cast<std::uint8_t*>(data.get()) + offset;  // tensors know no const
  return at::from_blob(
      begin, sizes, strides, [keep = data](void*) {}, at::kByte);
}

namespace {

// A file that is open, and what to say of it.
class OpenFile {
 public:
  OpenFile(const std::string& path, const std::string& next_move)
      : path_(path), next_move_(next_move), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) Fail(std::strerror(errno));
    struct stat status {};
    const bool known = fstat(fd_, &status) == 0;
    const int error = errno;
    size_ = status.st_size;
    if (known && S_ISREG(status.st_mode)) return;
    close(fd_);
    Fail(known ? "is not a regular file" : std::strerror(error));
  }
  ~OpenFile() { close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[noreturn]] void Fail(const std::string& fact) const {
    throw DataError(path_ + ": " + fact + "; " + next_move_);
  }
  int fd() const { return fd_; }
  std::int64_t size() const { return size_; }

 private:
  const std::string& path_;
  const std::string& next_move_;
  const int fd_;
  std::int64_t size_ = 0;
};

}  // namespace

MappedFile MapFile(const std::string& path, const std::string& next_move) {
  const OpenFile file(path, next_move);
  if (file.size() == 0) return {};
  const auto size = static_cast<std::size_t>(file.size());
  void* begin = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (begin == MAP_FAILED)
    file.Fail(std::string("cannot be mapped (") + std::strerror(errno) + ")");
  return {std::shared_ptr<const std::uint8_t>(
              static_cast<const std::uint8_t*>(begin),
              [size](const std::uint8_t* p) { munmap(const_cast<std::uint8_t*>(p), size); }),
          file.size()};
}

std::vector<std::uint8_t> ReadFile(const std::string& path, const std::string& next_move) {
  const OpenFile file(path, next_move);
  if (file.size() > kReadFileBytesMax) {
    file.Fail("is larger than the " + std::to_string(kReadFileBytesMax) + " bytes that are read");
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(file.size()));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = read(file.fd(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) file.Fail(std::string("cannot be read (") + std::strerror(errno) + ")");
    if (got == 0) break;  // shorter than it was
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

OwnBytes AllocateBytes(std::int64_t size) {
  const auto bytes = static_cast<std::size_t>(size);
  void* begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  return {std::shared_ptr<std::uint8_t>(static_cast<std::uint8_t*>(begin),
                                        [bytes](std::uint8_t* p) { munmap(p, bytes); }),
          size};
}

}  // namespace ddprun
