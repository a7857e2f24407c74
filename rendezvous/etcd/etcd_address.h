// SPDX-License-Identifier: Apache-2.0
// Where etcd is, as users write it. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Files of PEM texts. Without an authority: plain text.
struct EtcdTlsFiles {
  std::string ca;    // who must have signed the members' certificates
  std::string cert;  // this side's certificate, where etcd asks for one
  std::string key;
};

// `journal`: the place. INVALID_ARGUMENT: files that would have no effect, as they are for a
// journal in etcd and there is none, or as another one is missing.
absl::Status CheckEtcdTls(absl::string_view journal, const EtcdTlsFiles& files);

struct EtcdAddress {
  std::vector<std::string> members;  // "HOST:PORT"
  std::string prefix;                // of all keys, without a slash at its end
};

// "etcd://": what a place for a journal in etcd begins with.
bool IsEtcdAddress(absl::string_view text);
// "etcd://HOST:PORT[,HOST:PORT...][/PREFIX]"; the prefix is "ddprun" by default. INVALID_ARGUMENT:
// a sentence.
absl::StatusOr<EtcdAddress> ParseEtcdAddress(absl::string_view text);

}  // namespace ddprun
