// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/unpacked_file.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "rendezvous/base/random.h"
#include "worker/library/base/text.h"
#include "worker/library/files/atomic_file.h"
#include "worker/train/data/dataset.h"

namespace ddprun {
namespace {

constexpr std::size_t kChunkBytes = 1u << 20;
constexpr std::chrono::milliseconds kLockInterval{2};

struct Gzip {
  std::string path;
  std::int64_t size;  // unpacked
  std::string next_move;

  [[noreturn]] void Fail(const std::string& fact) const {
    throw DataError(path + ": " + fact + "; " + next_move);
  }
};

void Unpack(const Gzip& gzip, const std::function<void(const std::uint8_t*, std::size_t)>& write) {
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };
  const std::unique_ptr<gzFile_s, Close> file(gzopen(gzip.path.c_str(), "rb"));
  if (!file) gzip.Fail(std::strerror(errno));
  gzbuffer(file.get(), 256 * 1024);
  std::vector<std::uint8_t> chunk(kChunkBytes);
  std::int64_t done = 0;
  while (true) {
    const int got = gzread(file.get(), chunk.data(), static_cast<unsigned>(chunk.size()));
    if (got < 0) {
      int code = 0;
      const char* text = gzerror(file.get(), &code);
      gzip.Fail(std::string("cannot be decompressed (") +
                (code == Z_ERRNO ? std::strerror(errno) : text) + ")");
    }
    if (got == 0) break;
    done += got;
    if (done > gzip.size) gzip.Fail("goes on after what its header claims, it is damaged");
    write(chunk.data(), static_cast<std::size_t>(got));
  }
  if (done != gzip.size) {
    gzip.Fail("is too short, with " + std::to_string(done) + " of the " +
              std::to_string(gzip.size) + " bytes that its header claims");
  }
}

std::uint64_t Hash(const std::string& text) {
  std::uint64_t hash = 0;
  for (const char c : text) hash = SplitMix64(hash ^ static_cast<unsigned char>(c)).Next();
  return hash;
}

// Names of a file's copies: the part that all have in common, and that of its present content.
struct CopyName {
  std::string stem;
  std::string version;
};

CopyName NameOf(const Gzip& gzip) {
  std::error_code error;
  const auto canonical = std::filesystem::canonical(gzip.path, error);
  struct stat status {};
  if (error || stat(gzip.path.c_str(), &status) != 0) gzip.Fail(std::strerror(errno));
  return {Hex(Hash(canonical.string()), 16),
          Hex(Hash(std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) +
                   " " + std::to_string(status.st_mtim.tv_nsec)),
              16)};
}

// Owned and writable by this user alone: a folder that others can write to is not used.
bool MakeOwnFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == geteuid() && (status.st_mode & 0022) == 0;
}

// Held until it is destroyed, or until the process ends.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path)
      : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {}
  ~FolderLock() {
    if (fd_ >= 0) close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool Take() {
    const auto deadline = std::chrono::steady_clock::now() + kUnpackWaitMax;
    while (fd_ >= 0) {
      if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
      if (errno != EWOULDBLOCK && errno != EINTR) return false;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(kLockInterval);
    }
    return false;
  }

 private:
  const int fd_;
};

std::optional<at::Tensor> MapCopy(const std::string& copy, const Gzip& gzip) {
  if (access(copy.c_str(), R_OK) != 0) return std::nullopt;
  at::Tensor bytes = MapDataFile(copy, "remove it");
  if (bytes.numel() != gzip.size) return std::nullopt;
  return bytes;
}

// Removes copies of earlier contents of the file, and those of processes that were killed.
void RemoveOthers(const std::string& folder, const CopyName& name) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename();
    if (file.rfind(name.stem + "-", 0) == 0) std::filesystem::remove(entry.path(), error);
  }
}

// Null if the folder cannot be used. Throws std::runtime_error if it is full.
std::optional<at::Tensor> MapShared(const std::string& folder, const CopyName& name,
                                    const Gzip& gzip) {
  const std::string stem = folder + "/" + name.stem;
  const std::string copy = stem + "-" + name.version;
  if (!MakeOwnFolder(folder)) return std::nullopt;
  if (auto bytes = MapCopy(copy, gzip)) return bytes;
  FolderLock lock(stem + ".lock");
  if (!lock.Take()) return std::nullopt;
  if (auto bytes = MapCopy(copy, gzip)) return bytes;  // another rank has made it meanwhile
  RemoveOthers(folder, name);
  AtomicFile file(copy);
  Unpack(gzip, [&](const std::uint8_t* data, std::size_t size) { file.Write(data, size); });
  file.Commit();
  return MapCopy(copy, gzip);
}

}  // namespace

at::Tensor MapUnpacked(const std::string& path, std::int64_t size, const std::string& next_move) {
  const Gzip gzip{path, size, next_move};
  const CopyName name = NameOf(gzip);
  const std::string folders[] = {DataCacheFolder() + "/unpacked",
                                 "/dev/shm/ddprun-data-" + std::to_string(geteuid())};
  for (const auto& folder : folders) {
    try {
      if (auto bytes = MapShared(folder, name, gzip)) return *bytes;
    } catch (const DataError&) {
      throw;
    } catch (const std::runtime_error&) {
      // Full, or not to be written to: the next one.
    }
  }
  at::Tensor own = at::empty({size}, at::kByte);
  auto* out = own.data_ptr<std::uint8_t>();
  Unpack(gzip, [&](const std::uint8_t* data, std::size_t count) {
    std::memcpy(out, data, count);
    out += count;
  });
  return own;
}

std::string DataCacheFolder() {
  if (const char* cache = std::getenv("DDPRUN_CACHE_DIR")) return std::string(cache) + "/data";
  if (const char* caches = std::getenv("XDG_CACHE_HOME")) {
    return std::string(caches) + "/ddprun/data";
  }
  const char* home = std::getenv("HOME");
  return std::string(home ? home : ".") + "/.cache/ddprun/data";
}

}  // namespace ddprun
