// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/journal_database.h"

#include <endian.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/journal/journal_folder.h"

namespace ddprun {
namespace {

// "ddpJ", SQLite's application id.
constexpr std::uint32_t kApplicationId = 0x6464704a;
constexpr std::size_t kHeaderBytes = 100;
// A commit writes whole pages, so they are small; with smaller ones a commit of one record is
// slower.
constexpr int kPageBytes = 1024;
// Rows that one transaction deletes, for which commits wait.
constexpr int kDeletedRecords = 256;
constexpr auto kNoEnd = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

std::uint32_t Crc(std::uint64_t number, absl::string_view bytes) {
  number = htole64(number);
  const auto crc = crc32_z(0, reinterpret_cast<const unsigned char*>(&number), sizeof number);
  return static_cast<std::uint32_t>(
      crc32_z(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

std::uint32_t BigEndian(absl::string_view bytes, std::size_t offset) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return be32toh(number);
}

// The error of the file that failed: that of the connection may be from a later call.
int LastErrno(sqlite3* connection) {
  int error_number = 0;
  for (const int which : {SQLITE_FCNTL_JOURNAL_POINTER, SQLITE_FCNTL_FILE_POINTER}) {
    sqlite3_file* file = nullptr;
    sqlite3_file_control(connection, "main", which, &file);
    if (file == nullptr || file->pMethods == nullptr) continue;
    file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &error_number);
    if (error_number != 0) return error_number;
  }
  return sqlite3_system_errno(connection);
}

absl::Status OtherVersion(const std::string& path, std::uint32_t version) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the journal ", path, " has format ", version, ", and this ddprun reads format ",
      kJournalVersion, "; start the version that wrote it, or move the file away to begin anew"));
}

// Called before SQLite opens the file: SQLite would take an empty file for an empty database, and
// its error about another program's file does not name the program.
absl::Status CheckHeader(const std::string& path) {
  const OwnedFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (fd.get() < 0 && errno == ENOENT) return absl::NotFoundError(path);
  struct stat about {};
  if (fd.get() < 0 || fstat(fd.get(), &about) != 0) {
    return JournalError("cannot open the journal", path, errno);
  }
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a file; name another folder for the journal"));
  }
  std::string header(kHeaderBytes, '\0');
  const ssize_t count = pread(fd.get(), header.data(), header.size(), 0);
  if (count < 0) return JournalError("cannot read the journal", path, errno);
  // Bytes 18 and 19: the database is in WAL mode. 60: the version. 68: the application id.
  const bool is_journal = absl::StartsWith(header, absl::string_view("SQLite format 3\0", 16)) &&
                          header[18] == 2 && header[19] == 2 &&
                          BigEndian(header, 68) == kApplicationId;
  if (!is_journal) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     " is not a journal of ddprun, or its first bytes are damaged; "
                     "name another folder, or move the file away"));
  }
  const std::uint32_t version = BigEndian(header, 60);
  return version == kJournalVersion ? absl::OkStatus() : OtherVersion(path, version);
}

}  // namespace

void JournalDatabase::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

JournalDatabase::~JournalDatabase() {
  for (Statement* statement :
       {&begin_, &commit_, &rollback_, &insert_record_, &insert_part_, &set_snapshot_}) {
    statement->reset();
  }
  sqlite3_close(connection_);  // with a checkpoint
}

absl::Status JournalDatabase::Damaged(absl::string_view why) const {
  return absl::DataLossError(absl::StrCat(
      "the journal ", path_, " is damaged: ", why,
      "; check that disk, then restore the folder, or move it away to begin without its runs"));
}

absl::Status JournalDatabase::Error(absl::string_view what) const {
  switch (sqlite3_errcode(connection_) & 0xff) {
    case SQLITE_FULL:
      return JournalError(what, path_, ENOSPC);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR:  // no such table: the statements are fixed
      return Damaged(sqlite3_errmsg(connection_));
    case SQLITE_NOMEM:
      return JournalError(what, path_, ENOMEM);
    default:
      break;
  }
  if (const int error_number = LastErrno(connection_); error_number != 0) {
    return JournalError(what, path_, error_number);
  }
  return absl::InternalError(absl::StrCat(what, " ", path_, ": ", sqlite3_errmsg(connection_)));
}

// ---- SQL

absl::Status JournalDatabase::Connect() {
  // Not a URI, whatever the path is.
  const std::string name = absl::StartsWith(path_, "/") ? path_ : "./" + path_;
  if (sqlite3_open_v2(name.c_str(), &connection_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                      nullptr) != SQLITE_OK) {
    return Error("cannot open the journal");
  }
  // Locked by the folder already; SQLite's index of the WAL then needs no shared memory.
  if (absl::Status status = Run("PRAGMA locking_mode = EXCLUSIVE"); !status.ok()) return status;
  // SQLite's own checkpoints could delay any commit.
  if (absl::Status status = Run("PRAGMA wal_autocheckpoint = 0"); !status.ok()) return status;
  // The WAL is flushed by Sync() and by checkpoints, not by each commit.
  return Run("PRAGMA synchronous = NORMAL");
}

absl::Status JournalDatabase::Run(const char* sql) {
  if (sqlite3_exec(connection_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) {
    return absl::OkStatus();
  }
  return Error("cannot write to the journal");
}

absl::StatusOr<JournalDatabase::Statement> JournalDatabase::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(connection_, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) !=
      SQLITE_OK) {
    return Error("cannot read the journal");
  }
  return Statement(statement);
}

absl::StatusOr<std::int64_t> JournalDatabase::Number(const char* sql) {
  const auto statement = Prepare(sql);
  if (!statement.ok()) return statement.status();
  if (sqlite3_step(statement->get()) != SQLITE_ROW) return Error("cannot read the journal");
  return sqlite3_column_int64(statement->get(), 0);
}

absl::Status JournalDatabase::Step(sqlite3_stmt* statement) {
  const int result = sqlite3_step(statement);
  absl::Status status;
  if (result != SQLITE_DONE && result != SQLITE_ROW) status = Error("cannot write to the journal");
  sqlite3_reset(statement);
  return status;
}

absl::Status JournalDatabase::Insert(sqlite3_stmt* insert, std::uint64_t number,
                                     absl::string_view bytes) {
  if (bytes.size() > kJournalRecordBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("a journal record of ", bytes.size(),
                                                     " bytes is larger than the ",
                                                     kJournalRecordBytesMax, " allowed"));
  }
  sqlite3_bind_int64(insert, 1, static_cast<std::int64_t>(number));
  sqlite3_bind_int64(insert, 2, Crc(number, bytes));
  sqlite3_bind_blob(insert, 3, bytes.data(), static_cast<int>(bytes.size()), SQLITE_STATIC);
  absl::Status status = Step(insert);
  sqlite3_clear_bindings(insert);
  return status;
}

absl::Status JournalDatabase::InTransaction(const std::function<absl::Status()>& work) {
  if (absl::Status status = Step(begin_.get()); !status.ok()) return status;
  absl::Status status = work();
  if (status.ok()) status = Step(commit_.get());
  // Fails if SQLite has rolled back already.
  if (!status.ok()) Step(rollback_.get()).IgnoreError();
  return status;
}

// ---- Opening

absl::Status JournalDatabase::Create(const std::string& path) {
  // For its owner only: stored values may be secret. SQLite gives its other files the same mode.
  const OwnedFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) return JournalError("cannot write the journal", path, errno);
  if (absl::Status status = JournalDatabase(path).MakeEmpty(); !status.ok()) return status;
  if (fsync(fd.get()) == 0) return absl::OkStatus();
  return JournalError("cannot flush to the disk the journal", path, errno);
}

absl::Status JournalDatabase::MakeEmpty() {
  absl::Status status = Connect();
  const auto run = [&](const std::string& sql) {
    if (status.ok()) status = Run(sql.c_str());
  };
  run("PRAGMA synchronous = OFF");  // flushed once, when all is in it
  run(absl::StrCat("PRAGMA page_size = ", kPageBytes));
  run("BEGIN");
  run(absl::StrCat("PRAGMA application_id = ", kApplicationId));
  run(absl::StrCat("PRAGMA user_version = ", kJournalVersion));
  for (const char* table : {"records", "parts", "snapshot"}) {
    run(absl::StrCat("CREATE TABLE ", table,
                     "(number INTEGER PRIMARY KEY, crc INTEGER NOT NULL, bytes BLOB NOT NULL)"));
  }
  run("COMMIT");
  if (status.ok()) status = PrepareAll();
  if (status.ok()) status = SetSnapshot(1);
  run("PRAGMA journal_mode = WAL");
  return status;
}

absl::StatusOr<std::unique_ptr<JournalDatabase>> JournalDatabase::Open(
    const std::string& path, std::uint64_t synced_record, const JournalReplay& replay) {
  if (absl::Status status = CheckHeader(path); !status.ok()) return status;
  std::unique_ptr<JournalDatabase> database(new JournalDatabase(path));
  if (absl::Status status = database->Connect(); !status.ok()) return status;
  if (absl::Status status = database->Replay(synced_record, replay); !status.ok()) return status;
  if (absl::Status status = database->PrepareAll(); !status.ok()) return status;
  const std::string wal = path + "-wal";
  database->wal_ = OwnedFd(open(wal.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!database->wal_.valid()) return JournalError("cannot open the journal's file", wal, errno);
  return database;
}

absl::Status JournalDatabase::Replay(std::uint64_t synced_record, const JournalReplay& replay) {
  const auto snapshot_end = Read("snapshot", 1, kNoEnd, [&](absl::string_view bytes) {
    const std::vector<absl::string_view> numbers = absl::StrSplit(bytes, ' ');
    const bool read = numbers.size() == 3 && absl::SimpleAtoi(numbers[0], &first_part_) &&
                      absl::SimpleAtoi(numbers[1], &part_end_) &&
                      absl::SimpleAtoi(numbers[2], &first_record_);
    return read ? absl::OkStatus() : Damaged("its snapshot has no numbers");
  });
  if (!snapshot_end.ok()) return snapshot_end.status();
  if (*snapshot_end != 2) return Damaged("it has no snapshot");
  const auto part_end = Read("parts", first_part_, part_end_, [&](absl::string_view part) {
    snapshot_bytes_ += part.size();
    return replay.on_part(part);
  });
  if (!part_end.ok()) return part_end.status();
  if (*part_end != part_end_) return Damaged("its snapshot is not whole");
  const auto end = Read("records", first_record_, kNoEnd, replay.on_record);
  if (!end.ok()) return end.status();
  last_record_ = *end - 1;
  if (last_record_ < synced_record) {
    return Damaged(absl::StrCat("it ends with record ", last_record_, ", and record ",
                                synced_record, " had been flushed to the disk"));
  }
  const auto last_part = Number("SELECT coalesce(max(number), 0) FROM parts");
  if (!last_part.ok()) return last_part.status();
  adding_from_ = next_part_ = std::max(part_end_, static_cast<std::uint64_t>(*last_part) + 1);
  return MeasureDatabase();
}

absl::StatusOr<std::uint64_t> JournalDatabase::Read(
    const char* table, std::uint64_t first, std::uint64_t end,
    const std::function<absl::Status(absl::string_view bytes)>& on_row) {
  const auto select = Prepare(absl::StrCat("SELECT number, crc, bytes FROM ", table,
                                           " WHERE number >= ? AND number < ? ORDER BY number")
                                  .c_str());
  if (!select.ok()) return select.status();
  sqlite3_stmt* rows = select->get();
  sqlite3_bind_int64(rows, 1, static_cast<std::int64_t>(first));
  sqlite3_bind_int64(rows, 2, static_cast<std::int64_t>(end));
  std::uint64_t next = first;
  int result = SQLITE_OK;
  while ((result = sqlite3_step(rows)) == SQLITE_ROW) {
    const auto number = static_cast<std::uint64_t>(sqlite3_column_int64(rows, 0));
    const auto* data = static_cast<const char*>(sqlite3_column_blob(rows, 2));
    const absl::string_view bytes(data == nullptr ? "" : data,  // SQLite's empty blob
                                  static_cast<std::size_t>(sqlite3_column_bytes(rows, 2)));
    if (number != next || sqlite3_column_int64(rows, 1) != Crc(number, bytes)) {
      return Damaged(absl::StrCat("number ", next, " of its ", table, " cannot be read"));
    }
    if (absl::Status status = on_row(bytes); !status.ok()) return status;
    ++next;
  }
  if (result != SQLITE_DONE) return Error("cannot read the journal");
  return next;
}

absl::Status JournalDatabase::MeasureDatabase() {
  const auto pages = Number("PRAGMA page_count");
  if (!pages.ok()) return pages.status();
  const auto unused = Number("PRAGMA freelist_count");
  if (!unused.ok()) return unused.status();
  database_bytes_ = static_cast<std::uint64_t>(*pages - *unused) * kPageBytes;
  return absl::OkStatus();
}

// ---- Writing

absl::Status JournalDatabase::PrepareAll() {
  const std::pair<Statement*, const char*> all[] = {
      {&begin_, "BEGIN IMMEDIATE"},
      {&commit_, "COMMIT"},
      {&rollback_, "ROLLBACK"},
      {&insert_record_, "INSERT INTO records VALUES(?, ?, ?)"},
      {&insert_part_, "INSERT INTO parts VALUES(?, ?, ?)"},
      {&set_snapshot_, "INSERT OR REPLACE INTO snapshot VALUES(?, ?, ?)"}};
  for (const auto& [statement, sql] : all) {
    auto prepared = Prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = *std::move(prepared);
  }
  return absl::OkStatus();
}

absl::Status JournalDatabase::AddRecords(const std::vector<std::string>& records) {
  std::uint64_t number = last_record_;
  const auto add = [&] {
    absl::Status added;
    for (std::size_t i = 0; added.ok() && i < records.size(); ++i) {
      added = Insert(insert_record_.get(), ++number, records[i]);
    }
    return added;
  };
  // A single statement is a transaction by itself, and a third of the time cheaper.
  absl::Status status = records.size() == 1 ? add() : InTransaction(add);
  if (status.ok()) last_record_ = number;
  return status;
}

absl::Status JournalDatabase::AddPart(const std::string& part) {
  absl::Status status = Insert(insert_part_.get(), next_part_, part);
  if (status.ok()) ++next_part_;
  return status;
}

absl::Status JournalDatabase::SetSnapshot(std::uint64_t first_record) {
  absl::Status status = Insert(set_snapshot_.get(), 1,
                               absl::StrCat(adding_from_, " ", next_part_, " ", first_record));
  if (!status.ok()) return status;
  first_part_ = std::exchange(adding_from_, next_part_);
  part_end_ = next_part_;
  first_record_ = first_record;
  return absl::OkStatus();
}

void JournalDatabase::DropAdded() { adding_from_ = next_part_; }

absl::StatusOr<bool> JournalDatabase::DeleteSomeOld() {
  // A part may be large.
  const std::string old_part =
      absl::StrCat("DELETE FROM parts WHERE number IN (SELECT number FROM parts WHERE number < ",
                   first_part_, " OR number >= ", part_end_, " LIMIT 1)");
  const std::string old_records = absl::StrCat(
      "DELETE FROM records WHERE number IN (SELECT number FROM records WHERE number < ",
      first_record_, " LIMIT ", kDeletedRecords, ")");
  for (const std::string& sql : {old_part, old_records}) {
    if (absl::Status status = Run(sql.c_str()); !status.ok()) return status;
    if (sqlite3_changes(connection_) > 0) return true;
  }
  return false;
}

absl::Status JournalDatabase::Checkpoint() {
  if (sqlite3_wal_checkpoint_v2(connection_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr,
                                nullptr) != SQLITE_OK) {
    return Error("cannot write to the journal");
  }
  absl::Status status = MeasureDatabase();
  snapshot_bytes_ = database_bytes_;
  return status;
}

std::uint64_t JournalDatabase::Bytes() const {
  struct stat wal {};
  return database_bytes_ +
         (fstat(wal_.get(), &wal) == 0 ? static_cast<std::uint64_t>(wal.st_size) : 0);
}

absl::Status JournalDatabase::Sync() const {
  if (fdatasync(wal_.get()) == 0) return absl::OkStatus();
  return JournalError("cannot flush to the disk the journal", path_, errno);
}

}  // namespace ddprun
