// SPDX-License-Identifier: Apache-2.0
// The flags of ddprun-rendezvous.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/etcd/etcd_address.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

struct ServiceCommand {
  enum class Action { kServe, kHelp, kVersion };
  Action action = Action::kServe;
  std::string host = "127.0.0.1";
  int port = 29500;
  std::optional<std::string> run_id;
  SecurityOptions security;
  std::string journal;  // a folder or "etcd://..."; empty: none
  bool journal_sync = false;
  EtcdTlsFiles journal_tls;
  bool standby = false;
  std::string event_log;  // a file or "-"; empty: none
  int metrics_port = 0;   // 0: no metrics
  std::string metrics_addr = "127.0.0.1";
};

std::string ServiceUsage();

// `--flag VALUE` and `--flag=VALUE`, with `-` or `_` between words. INVALID_ARGUMENT with one
// sentence.
absl::StatusOr<ServiceCommand> ParseServiceCommand(const std::vector<std::string>& arguments);

}  // namespace ddprun
