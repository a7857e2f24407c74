// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/journal_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// Entries are gathered up to this size: one system call for many, and no second copy of a large
// snapshot.
constexpr std::size_t kWriteBytes = std::size_t{1} << 20;

class FileSource final : public JournalSource {
 public:
  FileSource(std::string path, int fd, std::uint64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}

  std::string name() const override { return path_; }
  std::uint64_t size() const override { return size_; }
  absl::Status Read(std::uint64_t offset, std::size_t count, char* to) const override {
    while (count > 0) {
      const ssize_t got = pread(fd_, to, count, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return JournalError("cannot read", path_, errno);
      if (got == 0) {
        return absl::DataLossError(
            absl::StrCat("the journal ", path_,
                         " became shorter while it was read; another program "
                         "writes it, end that one first"));
      }
      offset += static_cast<std::uint64_t>(got);
      to += got;
      count -= static_cast<std::size_t>(got);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const int fd_;
  const std::uint64_t size_;
};

absl::StatusOr<std::uint64_t> RandomNumber() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) {
    return JournalError("cannot read", "/dev/urandom", errno);
  }
  return number;
}

}  // namespace

absl::Status JournalError(absl::string_view what, const std::string& path, int error_number) {
  absl::string_view advice;
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      advice = "; free some space there and start the service again";
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      advice = "; give this user the right to write there, or name another folder";
      break;
    case ENOENT:
    case ENOTDIR:
      advice = "; name a folder that is there";
      break;
    case EIO:
      advice = "; check that disk";
      break;
    default:
      break;
  }
  return absl::Status(absl::ErrnoToStatusCode(error_number),
                      absl::StrCat(what, " ", path, ": ", std::strerror(error_number), advice));
}

// The first 64 bits of the boot's UUID.
std::uint64_t BootNumber() {
  static const std::uint64_t number = [] {
    const OwnedFd fd(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    char text[37] = {};
    if (fd.get() < 0 || read(fd.get(), text, sizeof text - 1) < 36) return 0ull;
    std::string digits;
    for (const char c : text) {
      if (c != '-' && digits.size() < 16) digits.push_back(c);
    }
    return std::strtoull(digits.c_str(), nullptr, 16);
  }();
  return number;
}

absl::StatusOr<std::unique_ptr<JournalFile>> JournalFile::Create(
    const std::string& path, const std::vector<std::string>& parts) {
  // For its owner only: what nodes store may be secret.
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return JournalError("cannot write the journal", path, errno);
  std::unique_ptr<JournalFile> file(new JournalFile(path, fd));
  const auto salt = RandomNumber();
  if (!salt.ok()) return salt.status();
  file->salt_ = *salt;
  const std::string header = JournalHeader(*salt);
  if (absl::Status status = file->WriteAt(0, header); !status.ok()) return status;
  file->end_ = header.size();
  absl::Status status = file->WriteEntries(JournalEntry::kPart, parts);
  // Whoever gives the file its name has brought it to the disk before.
  if (status.ok()) status = file->WriteMark(file->end_);
  if (!status.ok()) return status;
  file->snapshot_end_ = file->end_;
  return file;
}

absl::StatusOr<std::unique_ptr<JournalFile>> JournalFile::Open(const std::string& path,
                                                               const JournalReplay& replay) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) return absl::NotFoundError(path);
  if (fd < 0) return JournalError("cannot open the journal", path, errno);
  std::unique_ptr<JournalFile> file(new JournalFile(path, fd));
  struct stat about {};
  if (fstat(fd, &about) != 0) return JournalError("cannot open the journal", path, errno);
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a file; name another folder for the journal"));
  }
  const auto size = static_cast<std::uint64_t>(about.st_size);
  const auto contents = ReadJournal(FileSource(path, fd, size), BootNumber(), replay);
  if (!contents.ok()) return contents.status();
  file->salt_ = contents->salt;
  file->end_ = contents->end;
  file->snapshot_end_ = contents->snapshot_end;
  file->bytes_cut_ = size - contents->end;
  if (file->bytes_cut_ > 0 && ftruncate(fd, static_cast<off_t>(file->end_)) != 0) {
    return JournalError("cannot cut the unfinished end off the journal", path, errno);
  }
  absl::Status status = file->Sync();
  if (status.ok()) status = file->WriteMark(file->end_);
  if (!status.ok()) return status;
  return file;
}

absl::Status JournalFile::Write(const std::vector<std::string>& records) {
  return WriteEntries(JournalEntry::kRecord, records);
}

absl::Status JournalFile::WriteMark(std::uint64_t offset) {
  return WriteEntries(JournalEntry::kMark, {JournalMark(offset, BootNumber())});
}

absl::Status JournalFile::WriteEntries(JournalEntry kind,
                                       const std::vector<std::string>& payloads) {
  std::string bytes;
  std::uint64_t written_end = end_;
  absl::Status status;
  for (std::size_t i = 0; status.ok() && i < payloads.size(); ++i) {
    if (payloads[i].size() > kJournalRecordBytesMax) {
      status = absl::ResourceExhaustedError(absl::StrCat("a journal record of ", payloads[i].size(),
                                                         " bytes is larger than the ",
                                                         kJournalRecordBytesMax, " allowed"));
      break;
    }
    AddJournalEntry(kind, payloads[i], salt_, written_end + bytes.size(), bytes);
    if (bytes.size() < kWriteBytes && i + 1 < payloads.size()) continue;
    status = WriteAt(written_end, bytes);
    written_end += bytes.size();
    bytes.clear();
  }
  if (status.ok()) {
    end_ = written_end;
  } else if (ftruncate(fd_.get(), static_cast<off_t>(end_)) != 0) {
    // Then the next opening cuts it.
  }
  return status;
}

absl::Status JournalFile::WriteAt(std::uint64_t offset, absl::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      return JournalError(absl::StrCat("cannot write ", bytes.size(), " bytes at offset ", offset,
                                       " of the journal"),
                          path_, errno);
    }
    offset += static_cast<std::uint64_t>(wrote);
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return absl::OkStatus();
}

absl::Status JournalFile::Sync() const {
  if (fdatasync(fd_.get()) == 0) return absl::OkStatus();
  return JournalError("cannot bring to the disk the journal", path_, errno);
}

absl::Status JournalFile::RenameTo(const std::string& path) {
  if (rename(path_.c_str(), path.c_str()) != 0) {
    return JournalError("cannot rename the new journal to", path, errno);
  }
  path_ = path;
  return absl::OkStatus();
}

}  // namespace ddprun
