// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/command_line/parse_options.h"
#include "launcher/options/options.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Variables = std::map<std::string, std::string>;

absl::StatusOr<StopOptions> Read(const std::string& flags, const Variables& variables = {}) {
  std::vector<std::string> arguments = absl::StrSplit(flags, ' ', absl::SkipEmpty());
  arguments.push_back("true");
  auto parsed = ParseOptions(arguments, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
  if (!parsed.ok()) return parsed.status();
  return std::get<Options>(*parsed).stopping;
}

StopOptions Good(const std::string& flags, const Variables& variables = {}) {
  const auto options = Read(flags, variables);
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(StopOptions{});
}

std::string Error(const std::string& flags) {
  const auto options = Read(flags);
  EXPECT_TRUE(absl::IsInvalidArgument(options.status())) << flags;
  return std::string(options.status().message());
}

TEST(OptionsStoppingTest, TheDefaultsAreTorchruns) {
  const StopOptions options = Good("");
  EXPECT_THAT(options.end_signals, ElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
  EXPECT_THAT(options.forwarded_signals, IsEmpty());
  EXPECT_EQ(options.shutdown_timeout, seconds(30));
  EXPECT_EQ(options.restart_timeout, seconds(30));
}

TEST(OptionsStoppingTest, SignalsByName) {
  const StopOptions options =
      Good("--signals-to-handle SIGTERM,usr1,TERM --forward-signals=SIGWINCH,USR2");
  EXPECT_THAT(options.end_signals, ElementsAre(SIGTERM, SIGUSR1));
  EXPECT_THAT(options.forwarded_signals, ElementsAre(SIGWINCH, SIGUSR2));
}

TEST(OptionsStoppingTest, TorchrunsVariablesComeAfterPet) {
  const Variables both = {{"PET_SIGNALS_TO_HANDLE", "SIGINT"},
                          {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGHUP"},
                          {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}};
  EXPECT_THAT(Good("", both).end_signals, ElementsAre(SIGINT));
  EXPECT_EQ(Good("", both).shutdown_timeout, seconds(7));
  EXPECT_EQ(Good("--shutdown-timeout 2", both).shutdown_timeout, seconds(2));
  EXPECT_THAT(Good("", {{"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGHUP"}}).end_signals,
              ElementsAre(SIGHUP));
}

TEST(OptionsStoppingTest, WhatCannotBeHandledIsRefusedWithTheReason) {
  EXPECT_THAT(Error("--signals-to-handle SIGKILL"),
              HasSubstr("--signals-to-handle has SIGKILL, and the kernel lets no process handle"));
  EXPECT_THAT(Error("--forward-signals SIGSTOP"), HasSubstr("--forward-signals has SIGSTOP"));
  EXPECT_THAT(Error("--forward-signals SIGCHLD"), HasSubstr("its own processes"));
  EXPECT_THAT(Error("--signals-to-handle SIGSEGV"), HasSubstr("a fault in the process itself"));
  EXPECT_THAT(Error("--signals-to-handle SIGPIPE"), HasSubstr("which ends nothing"));
  EXPECT_THAT(Error("--signals-to-handle 15"), HasSubstr("has '15', which is no signal's name"));
  EXPECT_THAT(Error("--signals-to-handle SIGTERM,"), HasSubstr("has '', which is no signal's"));
  EXPECT_THAT(Error("--signals-to-handle="), HasSubstr("no signal's name"));
  EXPECT_THAT(Error("--forward-signals SIGTERM"),
              HasSubstr("which ends the run; take it out of --signals-to-handle"));
}

TEST(OptionsStoppingTest, ANoticeIsASignalOrAFile) {
  NoticeOptions options = Good("").notices;
  EXPECT_THAT(options.signals, IsEmpty());
  EXPECT_EQ(options.file, "");
  EXPECT_EQ(options.grace, seconds(30));
  EXPECT_EQ(options.worker_signal, 0);
  options = Good(
                "--notice-on-signal USR1,SIGUSR2 --notice-on-file /run/x --notice-grace 2m "
                "--notice-worker-signal WINCH")
                .notices;
  EXPECT_THAT(options.signals, ElementsAre(SIGUSR1, SIGUSR2));
  EXPECT_EQ(options.source, NoticeSource::kFile);
  EXPECT_EQ(options.file, "/run/x");
  EXPECT_EQ(options.grace, minutes(2));
  EXPECT_EQ(options.worker_signal, SIGWINCH);
}

TEST(OptionsStoppingTest, ANoticeHasASource) {
  EXPECT_EQ(Good("").notices.source, NoticeSource::kNone);
  EXPECT_EQ(Good("--preempt-notice aws").notices.source, NoticeSource::kAws);
  EXPECT_EQ(Good("--preempt-notice=gcp").notices.source, NoticeSource::kGcp);
  EXPECT_EQ(Good("--preempt-notice azure").notices.source, NoticeSource::kAzure);
  EXPECT_EQ(Good("--preempt-notice slurm").notices.source, NoticeSource::kSlurm);
  const NoticeOptions file = Good("--preempt-notice ./aws").notices;
  EXPECT_TRUE(file.source == NoticeSource::kFile && file.file == "./aws");
  EXPECT_EQ(Good("", {{"PET_NOTICE_ON_FILE", "/run/x"}}).notices.file, "/run/x");
  EXPECT_EQ(Good("", {{"PET_PREEMPT_NOTICE", "aws"}}).notices.source, NoticeSource::kAws);
}

TEST(OptionsStoppingTest, KubernetesGivesNoticeBySigterm) {
  const StopOptions options = Good("--preempt-notice kubernetes");
  EXPECT_EQ(options.notices.source, NoticeSource::kKubernetes);
  EXPECT_THAT(options.notices.signals, ElementsAre(SIGTERM));
  EXPECT_THAT(options.end_signals, ElementsAre(SIGINT, SIGHUP, SIGQUIT));
  EXPECT_THAT(Good("--preempt-notice kubernetes --notice-on-signal USR1,TERM").notices.signals,
              ElementsAre(SIGUSR1, SIGTERM));
  EXPECT_THAT(Error("--preempt-notice kubernetes --signals-to-handle TERM"),
              HasSubstr("--preempt-notice has SIGTERM, which ends the run"));
}

TEST(OptionsStoppingTest, ASignalHasOneMeaning) {
  const StopOptions options = Good("--notice-on-signal SIGTERM --forward-signals USR1");
  EXPECT_THAT(options.end_signals, ElementsAre(SIGINT, SIGHUP, SIGQUIT));
  EXPECT_THAT(options.passed_signals(), ElementsAre(SIGUSR1, SIGTERM));
  EXPECT_EQ(StopSignal(options), SIGINT);
  EXPECT_EQ(StopSignal(Good("--notice-on-signal USR1 --signals-to-handle INT")), SIGTERM);
  EXPECT_THAT(Error("--notice-on-signal TERM --signals-to-handle TERM"),
              HasSubstr("--notice-on-signal has SIGTERM, which ends the run; take it out of "
                        "--signals-to-handle"));
  EXPECT_THAT(Error("--notice-on-signal USR1 --forward-signals USR1"),
              HasSubstr("which is forwarded; take it out of --forward-signals"));
  EXPECT_THAT(Error("--notice-on-signal KILL"), HasSubstr("the kernel lets no process handle it"));
  EXPECT_THAT(Error("--notice-worker-signal USR1,USR2"), HasSubstr("the name of one signal"));
}

TEST(OptionsStoppingTest, EachTimeHasItsOwnFlagAndOneForBoth) {
  StopOptions options = Good("--term-timeout 4");
  EXPECT_EQ(options.shutdown_timeout, seconds(4));
  EXPECT_EQ(options.restart_timeout, seconds(4));
  options = Good("--term-timeout 4 --shutdown-timeout 1800");
  EXPECT_EQ(options.shutdown_timeout, minutes(30));
  EXPECT_EQ(options.restart_timeout, seconds(4));
  options = Good("--restart-timeout 0.5 --term-timeout 4");
  EXPECT_EQ(options.restart_timeout, milliseconds(500));
  EXPECT_EQ(options.shutdown_timeout, seconds(4));
  // The name that says more wins, wherever it stands.
  options = Good("--term-timeout 4", {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "9"}});
  EXPECT_EQ(options.shutdown_timeout, seconds(9));
  for (const char* none : {"0", "-1s", "s", "5x", "nan", "inf"})
    EXPECT_THAT(Error(absl::StrCat("--shutdown-timeout=", none)),
                HasSubstr("a number of seconds above 0"));
  EXPECT_THAT(Error("--restart-timeout 90000"), HasSubstr("up to 86400"));
}

TEST(OptionsStoppingTest, WhoGetsTheSignal) {
  EXPECT_EQ(Good("").signal_scope, SignalScope::kAuto);
  EXPECT_EQ(Good("--signal-scope worker").signal_scope, SignalScope::kWorker);
  EXPECT_EQ(Good("--signal-scope group").signal_scope, SignalScope::kGroup);
  EXPECT_THAT(Error("--signal-scope=all"), HasSubstr("worker or group"));
}

TEST(OptionsStoppingTest, WhatIsLeftBehindHasATimeOfItsOwn) {
  EXPECT_EQ(Good("--term-timeout 90").leftover_timeout, seconds(5));
  EXPECT_EQ(Good("--leftover-timeout 600").leftover_timeout, minutes(10));
  EXPECT_EQ(Good("--leftover-timeout 0").leftover_timeout, milliseconds(0)) << "SIGTERM at once";
  EXPECT_THAT(Error("--leftover-timeout=-1"), HasSubstr("a number of seconds above 0"));
}

TEST(OptionsStoppingTest, ATimeMayHaveAUnit) {
  EXPECT_EQ(Good("--term-timeout 90s").shutdown_timeout, seconds(90));
  EXPECT_EQ(Good("--term-timeout 250ms").shutdown_timeout, milliseconds(250));
  EXPECT_EQ(Good("--term-timeout 1h30m").shutdown_timeout, minutes(90));
}

TEST(OptionsStoppingTest, TheServiceIsAskedForAllOfTheTimeThatItTakes) {
  EXPECT_GT(StopTimeout(Good("--shutdown-timeout 1800")), minutes(30));
  EXPECT_GT(StopTimeout(Good("--restart-timeout 1800")), minutes(30));
  EXPECT_LT(StopTimeout(Good("--term-timeout 1")), seconds(60));
}

}  // namespace
}  // namespace ddprun
