// SPDX-License-Identifier: Apache-2.0
// Messages of a session between node and service. The first byte chooses the message.
#include "proto/ddprun.pb.h"
#include "proto/limits/message_limits.h"
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/session_convert.h"
#include "rendezvous/wire/status_convert.h"
#include "tests/fuzz/fuzz.h"

namespace ddprun::fuzz {
namespace {

// Reads a message, converts it there and back, and again: the second time changes nothing.
template <typename Message>
bool TryMessage(std::string_view bytes) {
  Message message;
  if (!CheckParsedSize(*Message::descriptor(), bytes).ok()) return false;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  const auto value = FromProto(message);
  if constexpr (requires { value.ok(); }) {
    if (!value.ok()) return false;
    const auto written = ToProto(*value);
    const auto again = FromProto(written);
    Require(again.ok(), "what is written can be read");
    Require(ToProto(*again).SerializeAsString() == written.SerializeAsString(),
            "a message is read as it was written");
  } else {
    const auto written = ToProto(value);
    Require(ToProto(FromProto(written)).SerializeAsString() == written.SerializeAsString(),
            "a message is read as it was written");
  }
  return true;
}

}  // namespace

std::vector<std::string> Seeds() {
  v1::Report report;
  v1::Join& join = *report.mutable_join();
  join.set_run_id("run");
  join.set_node_id("node");
  v1::Report failed;
  v1::Failure& failure = *failed.mutable_worker_failed()->mutable_failure();
  failure.set_exit_code(3);
  failure.set_message("text");
  v1::Directive start;
  start.mutable_start()->set_round(2);
  v1::LogLines lines;
  v1::Verdict verdict;
  verdict.set_exit_code(1);
  v1::RunNews news;
  news.mutable_begun();
  return {"r" + report.SerializeAsString(),          "r" + failed.SerializeAsString(),
          "d" + start.SerializeAsString(),           "l" + lines.SerializeAsString(),
          "v" + verdict.SerializeAsString(),         "n" + news.SerializeAsString(),
          "o" + v1::LossReport().SerializeAsString()};
}

bool Try(std::string_view bytes) {
  if (bytes.empty()) return false;
  const std::string_view message = bytes.substr(1);
  switch (bytes[0]) {
    case 'r':
      return TryMessage<v1::Report>(message);
    case 'd':
      return TryMessage<v1::Directive>(message);
    case 'l':
      return TryMessage<v1::LogLines>(message);
    case 'v':
      return TryMessage<v1::Verdict>(message);
    case 'n':
      return TryMessage<v1::RunNews>(message);
    default:
      return TryMessage<v1::LossReport>(message);
  }
}

}  // namespace ddprun::fuzz
