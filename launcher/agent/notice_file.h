// SPDX-License-Identifier: Apache-2.0
// Waits for a file whose appearance is a notice of preemption (--notice-on-file). The file is asked
// for again and again, on another thread: its folder may not exist yet, may be on a file server,
// and its disk may hang.
#pragma once

#include <chrono>
#include <future>
#include <optional>
#include <string>

#include "launcher/base/background.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/base/clock.h"

namespace ddprun {

// What was found at the path.
struct NoticeFileLook {
  bool exists = false;
  std::string text;   // its beginning, as far as it can be read
  std::string error;  // why nothing is known; empty: `exists` is
};
NoticeFileLook LookAtNoticeFile(const std::string& path);

// What follows from one look after the other. Pure.
class NoticeFileRules {
 public:
  NoticeFileRules(std::string path, std::chrono::milliseconds grace)
      : path_(std::move(path)), grace_(grace) {}

  // Once each time that the file appears. An empty one is looked at twice, since who writes the
  // time into it creates it first.
  std::optional<NoticeGiven> OnLook(const NoticeFileLook& look);

  // A sentence for users, once for each reason.
  std::optional<std::string> TakeProblem(const std::string& error);

 private:
  const std::string path_;
  const std::chrono::milliseconds grace_;
  bool given_ = false;
  bool was_empty_ = false;
  std::string problem_;
};

class NoticeFile {
 public:
  // `path` empty: there is none to wait for.
  NoticeFile(const std::string& path, std::chrono::milliseconds grace, const Background& background)
      : path_(path), rules_(path, grace), background_(background) {}

  std::optional<TimePoint> NextDeadline() const;

  // `problem`: a sentence for users, if there is a new one.
  std::optional<NoticeGiven> OnTurn(TimePoint now, std::optional<std::string>& problem);

 private:
  const std::string path_;
  NoticeFileRules rules_;
  const Background& background_;
  std::future<NoticeFileLook> look_;
  TimePoint due_{};  // of the next look; while one is under way: when it is late
};

}  // namespace ddprun
