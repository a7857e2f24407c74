// SPDX-License-Identifier: Apache-2.0
// A folder for a journal that goes with the test, and what is read back from it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/file_journal.h"

namespace ddprun {

// Generous: only a test that fails waits for it.
inline constexpr std::chrono::seconds kJournalTestDeadline{30};

class JournalFolder {
 public:
  JournalFolder() {
    std::string name = std::filesystem::temp_directory_path() / "ddprun-journal-XXXXXX";
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
                                 const FileJournalOptions& options = {}) {
  OpenedJournal opened;
  auto journal = OpenFileJournal(folder, options,
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

// Waits for the event, not for a time. False: the deadline came first.
inline bool Eventually(const std::function<bool()>& happened) {
  const auto deadline = std::chrono::steady_clock::now() + kJournalTestDeadline;
  while (!happened()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace ddprun
