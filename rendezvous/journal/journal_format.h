// SPDX-License-Identifier: Apache-2.0
// How a journal looks as bytes, and how they are read. The reader does no I/O of its own and trusts
// nothing: any bytes give an error, or what was written up to a point.
//
//   file    = header, part*, mark, (record | mark)*
//   header  = "ddprunJ\n", version u32, 0 u32, salt u64, CRC-32 u32 of all before it
//   entry   = kind u32, length u32, CRC-32 u32 of the payload, CRC-32 u32 of (salt, the entry's
//   offset
//             in the file, kind, length, the payload's CRC), payload of `length` bytes
//   mark    = an entry whose payload is: all before this offset is on disk u64, boot u64
//
// Numbers are little-endian; the CRC is zlib's. After LevelDB's log (length, checksum, type,
// payload) and SQLite's WAL, from which the salt is: an old block, or a journal that somebody
// stored as a value, is not taken for an entry, since neither salt nor offset are right. Magic and
// version keep their places in every version, and so does what is before the CRC.
//
// What a bad entry means depends on who can have made it. A process that is killed leaves the
// beginning of what it wrote: nothing good can follow. A machine that crashes may lose any page
// that was not yet on disk, and keep later ones. Hence the marks, which say what was on disk, and
// in which boot of the machine they were written. A bad entry is
//   - damage, if a later mark says that it had been on disk, or if the machine has not been booted
//     since the last mark before it and anything good comes after it, or if it belongs to the
//     snapshot (which was on disk before the file got its name): an error, since records that were
//     committed would be lost;
//   - else the unfinished end: what is before it is everything that was committed and survived.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/journal/journal.h"

namespace ddprun {

inline constexpr std::uint32_t kJournalVersion = 1;

enum class JournalEntry : std::uint32_t { kPart = 1, kRecord = 2, kMark = 3 };

std::string JournalHeader(std::uint64_t salt);

// Adds an entry that will stand at `offset` of the file.
void AddJournalEntry(JournalEntry kind, absl::string_view payload, std::uint64_t salt,
                     std::uint64_t offset, std::string& to);

std::string JournalMark(std::uint64_t offset_on_disk, std::uint64_t boot);

// Bytes to be read, for instance a file.
class JournalSource {
 public:
  virtual ~JournalSource() = default;
  virtual std::string name() const = 0;  // for people
  virtual std::uint64_t size() const = 0;
  // Exactly that many, within size().
  virtual absl::Status Read(std::uint64_t offset, std::size_t count, char* to) const = 0;
};

struct JournalContents {
  std::uint64_t salt = 0;
  std::uint64_t snapshot_end = 0;
  std::uint64_t end = 0;  // of the last good entry; what is after it is unfinished
};

// `boot` is the machine's present one, 0 if it is not known. INVALID_ARGUMENT: no journal,
// FAILED_PRECONDITION: of another version, DATA_LOSS: damaged. Each sentence names source, offset
// and what to do. `replay` may have been called before an error is found. Holds one entry at a time
// in memory.
absl::StatusOr<JournalContents> ReadJournal(const JournalSource& source, std::uint64_t boot,
                                            const JournalReplay& replay);

}  // namespace ddprun
