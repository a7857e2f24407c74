// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/journal_format.h"

#include <zlib.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr absl::string_view kMagic = "ddprunJ\n";
constexpr std::size_t kHeaderBytes = 28;
constexpr std::size_t kEntryHeaderBytes = 16;
constexpr std::size_t kMarkBytes = 16;
constexpr std::size_t kWindowBytes = std::size_t{1} << 20;

template <typename Number>
void AddNumber(Number number, std::string& to) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    to.push_back(static_cast<char>(static_cast<unsigned char>(number >> (8 * i))));
  }
}

template <typename Number>
Number NumberAt(absl::string_view bytes, std::size_t offset) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    number |= static_cast<Number>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i);
  }
  return number;
}

std::uint32_t Crc(absl::string_view bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

struct EntryHeader {
  std::uint32_t kind = 0;
  std::uint32_t length = 0;
  std::uint32_t payload_crc = 0;
};

std::uint32_t CrcOf(const EntryHeader& header, std::uint64_t salt, std::uint64_t offset) {
  std::string bytes;
  bytes.reserve(2 * sizeof(std::uint64_t) + sizeof(EntryHeader));
  AddNumber(salt, bytes);
  AddNumber(offset, bytes);
  AddNumber(header.kind, bytes);
  AddNumber(header.length, bytes);
  AddNumber(header.payload_crc, bytes);
  return Crc(bytes);
}

// A view of a source that moves forward.
class Window {
 public:
  explicit Window(const JournalSource& source) : source_(source) {}

  // Valid until the next call. The caller has checked that the source is that long.
  absl::StatusOr<absl::string_view> At(std::uint64_t offset, std::size_t count) {
    if (offset < begin_ || offset + count > begin_ + buffer_.size()) {
      const std::uint64_t left = source_.size() - offset;
      buffer_.resize(
          static_cast<std::size_t>(std::min<std::uint64_t>(left, std::max(count, kWindowBytes))));
      begin_ = offset;
      if (absl::Status status = source_.Read(offset, buffer_.size(), buffer_.data());
          !status.ok()) {
        buffer_.clear();
        return status;
      }
    }
    return absl::string_view(buffer_).substr(static_cast<std::size_t>(offset - begin_), count);
  }

 private:
  const JournalSource& source_;
  std::uint64_t begin_ = 0;
  std::string buffer_;
};

class Reader {
 public:
  Reader(const JournalSource& source, std::uint64_t boot, const JournalReplay& replay)
      : source_(source), boot_(boot), replay_(replay), window_(source) {}

  absl::StatusOr<JournalContents> Read();

 private:
  struct Entry {
    JournalEntry kind;
    absl::string_view payload;
    std::uint64_t end;
  };

  absl::Status ReadHeader();
  // Nothing if what is there is not a good entry.
  absl::StatusOr<std::optional<Entry>> EntryAt(std::uint64_t offset);
  absl::Status Take(const Entry& entry, std::uint64_t offset);
  absl::Status CheckUnfinished(std::uint64_t bad);
  absl::Status Damaged(std::uint64_t offset, absl::string_view why) const;

  const JournalSource& source_;
  const std::uint64_t boot_;
  const JournalReplay& replay_;
  Window window_;
  JournalContents contents_;
  std::uint64_t last_mark_boot_ = 0;
};

absl::Status Reader::Damaged(std::uint64_t offset, absl::string_view why) const {
  return absl::DataLossError(absl::StrCat(
      "the journal ", source_.name(), " is damaged at offset ", offset, ": ", why,
      "; check that disk, then restore the file, or move it away to begin without its runs"));
}

absl::Status Reader::ReadHeader() {
  const std::size_t there =
      static_cast<std::size_t>(std::min<std::uint64_t>(source_.size(), kHeaderBytes));
  const auto bytes = window_.At(0, there);
  if (!bytes.ok()) return bytes.status();
  if (there < kHeaderBytes || bytes->substr(0, kMagic.size()) != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat(source_.name(),
                     " is not a journal of ddprun, or its first bytes are damaged; "
                     "name another folder, or move the file away"));
  }
  if (Crc(bytes->substr(0, kHeaderBytes - 4)) !=
      NumberAt<std::uint32_t>(*bytes, kHeaderBytes - 4)) {
    return Damaged(0, "its header has a wrong checksum");
  }
  const auto version = NumberAt<std::uint32_t>(*bytes, 8);
  if (version != kJournalVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the journal ", source_.name(), " has format ", version, ", and this ddprun reads format ",
        kJournalVersion, "; start the version that wrote it, or move the file away to begin anew"));
  }
  contents_.salt = NumberAt<std::uint64_t>(*bytes, 16);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Reader::Entry>> Reader::EntryAt(std::uint64_t offset) {
  if (source_.size() - offset < kEntryHeaderBytes) return std::nullopt;
  const auto bytes = window_.At(offset, kEntryHeaderBytes);
  if (!bytes.ok()) return bytes.status();
  EntryHeader header;
  header.kind = NumberAt<std::uint32_t>(*bytes, 0);
  if (header.kind < static_cast<std::uint32_t>(JournalEntry::kPart) ||
      header.kind > static_cast<std::uint32_t>(JournalEntry::kMark)) {
    return std::nullopt;
  }
  header.length = NumberAt<std::uint32_t>(*bytes, 4);
  header.payload_crc = NumberAt<std::uint32_t>(*bytes, 8);
  const std::uint64_t left = source_.size() - offset - kEntryHeaderBytes;
  if (header.length > left || header.length > kJournalRecordBytesMax) return std::nullopt;
  if (CrcOf(header, contents_.salt, offset) != NumberAt<std::uint32_t>(*bytes, 12)) {
    return std::nullopt;
  }
  const auto payload = window_.At(offset + kEntryHeaderBytes, header.length);
  if (!payload.ok()) return payload.status();
  if (Crc(*payload) != header.payload_crc) return std::nullopt;
  const auto kind = static_cast<JournalEntry>(header.kind);
  if (kind == JournalEntry::kMark && payload->size() != kMarkBytes) return std::nullopt;
  return Entry{kind, *payload, offset + kEntryHeaderBytes + header.length};
}

absl::Status Reader::Take(const Entry& entry, std::uint64_t offset) {
  const bool in_snapshot = contents_.snapshot_end == 0;
  switch (entry.kind) {
    case JournalEntry::kPart:
      if (!in_snapshot) return Damaged(offset, "a part of a snapshot stands among the records");
      return replay_.on_part(entry.payload);
    case JournalEntry::kRecord:
      if (in_snapshot) return Damaged(offset, "a record stands in the snapshot");
      return replay_.on_record(entry.payload);
    case JournalEntry::kMark:
      if (in_snapshot) contents_.snapshot_end = entry.end;
      last_mark_boot_ = NumberAt<std::uint64_t>(entry.payload, 8);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

// Judges a bad entry by what comes after it; the head of this file's header has the rules. Every
// offset is tried, since the bad entry's length may be what is wrong with it.
absl::Status Reader::CheckUnfinished(std::uint64_t bad) {
  if (contents_.snapshot_end == 0) return Damaged(bad, "the snapshot is not whole");
  const bool same_boot = boot_ != 0 && last_mark_boot_ == boot_;
  for (std::uint64_t offset = bad + 1; offset < source_.size(); ++offset) {
    const auto entry = EntryAt(offset);
    if (!entry.ok()) return entry.status();
    if (!*entry) continue;
    const bool was_on_disk = (*entry)->kind == JournalEntry::kMark &&
                             NumberAt<std::uint64_t>((*entry)->payload, 0) > bad;
    if (same_boot || was_on_disk) {
      return Damaged(bad, absl::StrCat("what stands there cannot be read, but offset ", offset,
                                       " can, so records would be missing"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<JournalContents> Reader::Read() {
  if (absl::Status status = ReadHeader(); !status.ok()) return status;
  contents_.end = kHeaderBytes;
  while (contents_.end < source_.size()) {
    const auto entry = EntryAt(contents_.end);
    if (!entry.ok()) return entry.status();
    if (!*entry) break;
    if (absl::Status status = Take(**entry, contents_.end); !status.ok()) return status;
    contents_.end = (*entry)->end;
  }
  if (contents_.end < source_.size() || contents_.snapshot_end == 0) {
    if (absl::Status status = CheckUnfinished(contents_.end); !status.ok()) return status;
  }
  return contents_;
}

}  // namespace

std::string JournalHeader(std::uint64_t salt) {
  std::string header(kMagic);
  AddNumber(kJournalVersion, header);
  AddNumber(std::uint32_t{0}, header);
  AddNumber(salt, header);
  AddNumber(Crc(header), header);
  return header;
}

void AddJournalEntry(JournalEntry kind, absl::string_view payload, std::uint64_t salt,
                     std::uint64_t offset, std::string& to) {
  EntryHeader header;
  header.kind = static_cast<std::uint32_t>(kind);
  header.length = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = Crc(payload);
  AddNumber(header.kind, to);
  AddNumber(header.length, to);
  AddNumber(header.payload_crc, to);
  AddNumber(CrcOf(header, salt, offset), to);
  to.append(payload.data(), payload.size());
}

std::string JournalMark(std::uint64_t offset_on_disk, std::uint64_t boot) {
  std::string mark;
  AddNumber(offset_on_disk, mark);
  AddNumber(boot, mark);
  return mark;
}

absl::StatusOr<JournalContents> ReadJournal(const JournalSource& source, std::uint64_t boot,
                                            const JournalReplay& replay) {
  return Reader(source, boot, replay).Read();
}

}  // namespace ddprun
