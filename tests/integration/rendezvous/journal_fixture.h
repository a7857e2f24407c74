// SPDX-License-Identifier: Apache-2.0
// A folder for a journal that goes with the test, and what is read back from it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/journal/sqlite_journal.h"
#include "tests/testing/eventually.h"

namespace ddprun {

// For what does not depend on the disk, which may be slow.
inline std::filesystem::path InMemory() {
  return std::filesystem::exists("/dev/shm") ? std::filesystem::path("/dev/shm")
                                             : std::filesystem::temp_directory_path();
}

class JournalFolder {
 public:
  JournalFolder() : JournalFolder(std::filesystem::temp_directory_path()) {}
  explicit JournalFolder(const std::filesystem::path& parent) {
    std::string name = parent / "ddprun-journal-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~JournalFolder() { std::filesystem::remove_all(path_); }
  JournalFolder(const JournalFolder&) = delete;
  JournalFolder& operator=(const JournalFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct OpenedJournal {
  absl::Status status;
  std::unique_ptr<Journal> journal;
  std::vector<std::string> parts;
  std::vector<std::string> records;
};

inline OpenedJournal OpenJournal(const std::string& folder,
                                 const SqliteJournalOptions& options = {}) {
  OpenedJournal opened;
  auto journal = OpenSqliteJournal(folder, options,
                                   {[&](absl::string_view part) {
                                      opened.parts.emplace_back(part);
                                      return absl::OkStatus();
                                    },
                                    [&](absl::string_view record) {
                                      opened.records.emplace_back(record);
                                      return absl::OkStatus();
                                    }});
  opened.status = journal.status();
  if (journal.ok()) opened.journal = *std::move(journal);
  return opened;
}

}  // namespace ddprun
