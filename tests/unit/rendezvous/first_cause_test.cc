// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/first_cause.h"

#include <gtest/gtest.h>

#include <csignal>

namespace ddprun {
namespace {

Failure Said(std::vector<std::string> last_lines) {
  Failure failure;
  failure.exit_code = 1;
  failure.last_lines = std::move(last_lines);
  return failure;
}

Failure Signaled(int signal, std::vector<std::string> last_lines = {}) {
  Failure failure = Said(std::move(last_lines));
  failure.kind = FailureKind::kWorkerSignaled;
  failure.signal = signal;
  return failure;
}

TEST(FirstCauseTest, WordsOfAGonePeerAreASymptom) {
  for (const char* words : {
           // As seen with torch 2.11.
           "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection "
           "closed by peer [127.0.0.1]:4222",
           "[rank1]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:543] Read "
           "error [127.0.0.1]:1: Connection reset by peer",
           "torch.distributed.DistNetworkError: failed to recv, got 0 bytes. Connection was likely "
           "closed. Did the remote server shutdown or crash?",
           "ncclRemoteError: A call failed possibly due to a network error or a remote process "
           "exiting prematurely.",
           "BrokenPipeError: [Errno 32] Broken pipe",
           "train: the store operation belongs to round 1 and the run is in round 2",
       }) {
    EXPECT_EQ(NatureOf(Said({"step 7", words})), Nature::kSymptom) << words;
    EXPECT_EQ(NatureOf(Signaled(SIGABRT, {"terminate called", words})), Nature::kSymptom) << words;
    EXPECT_EQ(NatureOf(Signaled(SIGSEGV, {words})), Nature::kOrigin) << words;
    EXPECT_EQ(NatureOf(Signaled(SIGKILL, {words})), Nature::kOrigin) << words;
  }
}

TEST(FirstCauseTest, EverythingElseIsAnOrigin) {
  EXPECT_EQ(NatureOf(Said({})), Nature::kOrigin);
  EXPECT_EQ(NatureOf(Said({"RuntimeError: CUDA error: out of memory"})), Nature::kOrigin);
  EXPECT_EQ(NatureOf(Signaled(SIGABRT, {"double free or corruption"})), Nature::kOrigin);
  EXPECT_EQ(NatureOf(Signaled(SIGPIPE)), Nature::kSymptom);
  for (const FailureKind kind : {FailureKind::kSpawnFailed, FailureKind::kNodeLost,
                                 FailureKind::kNodeInterrupted, FailureKind::kJoinTimeout}) {
    Failure failure = Said({"Broken pipe"});
    failure.kind = kind;
    EXPECT_EQ(NatureOf(failure), Nature::kOrigin);
  }
}

TEST(FirstCauseTest, ARecordSaysMoreThanTheOutput) {
  Failure failure = Said({"Connection reset by peer"});
  failure.message = "ValueError: no data";
  EXPECT_EQ(NatureOf(failure), Nature::kOrigin);
  failure.traceback = "Traceback (most recent call last):\n  x\nRuntimeError: Broken pipe";
  EXPECT_EQ(NatureOf(failure), Nature::kSymptom);
}

// What failed first in a chain of exceptions counts, not what failed while that was handled.
TEST(FirstCauseTest, TheFirstExceptionOfAChainCounts) {
  const std::vector<std::string> own = {"Traceback (most recent call last):", "  train()",
                                        "ValueError: no data"};
  const std::vector<std::string> peer = {
      "[rank1]: Traceback (most recent call last):", "[rank1]:   all_reduce()",
      "[rank1]: RuntimeError: Connection closed by peer"};
  const std::vector<std::string> link = {
      "", "During handling of the above exception, another exception occurred:", ""};
  const auto joined = [](auto... parts) {
    std::vector<std::string> all;
    (all.insert(all.end(), parts.begin(), parts.end()), ...);
    return all;
  };
  EXPECT_EQ(NatureOf(Said(joined(own, link, peer))), Nature::kOrigin);
  EXPECT_EQ(NatureOf(Said(joined(peer, link, own))), Nature::kSymptom);
  // Not linked: an error that was logged and overcome.
  EXPECT_EQ(NatureOf(Said(joined(peer, own))), Nature::kOrigin);
  EXPECT_EQ(NatureOf(Said(joined(own, peer))), Nature::kSymptom);
  // The chain's begin is not among the last lines any more.
  EXPECT_EQ(NatureOf(Said(joined(std::vector<std::string>{"ValueError: no"}, link, peer))),
            Nature::kOrigin);
}

TEST(FirstCauseTest, OnlyAnOriginTakesThePlaceOfASymptomOnly) {
  const Failure origin = Signaled(SIGSEGV);
  const Failure symptom = Said({"Connection closed by peer"});
  EXPECT_TRUE(TakesThePlaceOf(origin, symptom));
  EXPECT_FALSE(TakesThePlaceOf(symptom, origin));
  EXPECT_FALSE(TakesThePlaceOf(origin, origin));
  EXPECT_FALSE(TakesThePlaceOf(symptom, symptom));
}

TEST(FirstCauseTest, AWorkerThatEndedEarlyExplainsSymptomsAndHangs) {
  Failure early;
  early.kind = FailureKind::kWorkerEndedEarly;
  const Failure symptom = Said({"Connection closed by peer"});
  Failure hung;
  hung.kind = FailureKind::kWorkerHung;
  hung.hang.emplace();
  EXPECT_TRUE(TakesThePlaceOf(early, symptom));
  EXPECT_TRUE(TakesThePlaceOf(early, hung));
  EXPECT_FALSE(TakesThePlaceOf(early, Signaled(SIGSEGV)));
  EXPECT_FALSE(TakesThePlaceOf(early, early));
  EXPECT_FALSE(TakesThePlaceOf(symptom, early));
  EXPECT_FALSE(TakesThePlaceOf(hung, early));
}

TEST(FirstCauseTest, AnOutputThatEndsInATraceback) {
  EXPECT_TRUE(EndsInTraceback(
      {"step 1", "Traceback (most recent call last):", "  File \"a.py\"", "ValueError: no"}));
  EXPECT_TRUE(EndsInTraceback(
      {"[rank0]: Traceback (most recent call last):", "[rank0]:   File \"a.py\"",
       "[rank0]: ValueError: no", "[rank0]:[W101 11:22:33.4 ProcessGroupNCCL.cpp:1] Warning: x"}));
  EXPECT_TRUE(
      EndsInTraceback({"Traceback (most recent call last):", "  x", "KeyError: 1", "",
                       "During handling of the above exception, another exception occurred:", "",
                       "Traceback (most recent call last):", "  y", "ValueError: no"}));
  EXPECT_FALSE(EndsInTraceback({}));
  EXPECT_FALSE(EndsInTraceback({"Traceback (most recent call last):", "  File \"a.py\""}));
  EXPECT_FALSE(EndsInTraceback(
      {"Traceback (most recent call last):", "  x", "ValueError: no", "trying again"}));
}

TEST(FirstCauseTest, SectionsThatWaitForPeers) {
  for (const char* section : {"all_reduce", "all_reduce 4711", "backward, all_reduce", "barrier",
                              "AllReduce", "nccl:broadcast", "allgather"}) {
    EXPECT_TRUE(WaitsForPeers(section)) << section;
  }
  for (const char* section : {"", "data", "checkpoint", "forward", "preparing all_reduced data"}) {
    EXPECT_FALSE(WaitsForPeers(section)) << section;
  }
}

}  // namespace
}  // namespace ddprun
