// SPDX-License-Identifier: Apache-2.0
// Watches the source of --preempt-notice: a file that appears, the metadata server of a cloud, the
// end of a Slurm job. Files and servers are asked again and again, on another thread, one look at a
// time: a folder may not exist yet, a disk or a server may hang. Nothing in the run waits for them.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/base/background.h"
#include "launcher/notices/metadata_service.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/base/clock.h"

namespace ddprun {

// A file's text is the time left in seconds, or anything.
NoticeLook LookAtNoticeFile(const std::string& path);
// As many requests as the service wants, within limits.
NoticeLook AskMetadata(MetadataService& service);

using NoticeChange = std::variant<NoticeGiven, NoticeWithdrawn>;

// What follows from one look after the other. Pure.
class NoticeRules {
 public:
  explicit NoticeRules(std::chrono::milliseconds grace) : grace_(grace) {}

  // A notice counts once, and is withdrawn when the source does not say it any more.
  std::vector<NoticeChange> OnLook(const NoticeLook& look);

 private:
  const std::chrono::milliseconds grace_;
  std::string id_;
  std::string reason_;
  bool was_unsure_ = false;
};

class NoticeWatch {
 public:
  NoticeWatch(const NoticeOptions& options, const GetVariable& get_variable,
              const Background& background);

  std::optional<TimePoint> NextDeadline() const;

  // `problem`: a sentence for users, once.
  std::vector<NoticeChange> OnTurn(TimePoint now, std::optional<std::string>& problem);

 private:
  std::optional<std::string> TakeProblem(const std::string& error);
  std::vector<NoticeChange> OnSlurmTurn(TimePoint now, std::optional<std::string>& problem);

  const NoticeOptions options_;
  const std::optional<std::string> slurm_end_;      // seconds since 1970
  const std::shared_ptr<MetadataService> service_;  // used by one look at a time
  const Background& background_;
  NoticeRules rules_;
  std::future<NoticeLook> look_;
  TimePoint due_{};  // of the next look; while one is under way: when it is late
  bool has_failed_ = false;
};

}  // namespace ddprun
