// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/etcd/etcd_address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr absl::string_view kScheme = "etcd://";
constexpr int kPortMax = 65535;

}  // namespace

absl::Status CheckEtcdTls(absl::string_view journal, const EtcdTlsFiles& files) {
  const bool any = !files.ca.empty() || !files.cert.empty() || !files.key.empty();
  if (any && !IsEtcdAddress(journal)) {
    return absl::InvalidArgumentError(
        "--journal-tls-ca, -cert and -key need a journal in etcd: --journal etcd://HOST:PORT,...");
  }
  if (files.cert.empty() == files.key.empty() && (!files.ca.empty() || files.cert.empty()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--journal-tls-cert and --journal-tls-key go together, and need --journal-tls-ca");
}

bool IsEtcdAddress(absl::string_view text) { return absl::StartsWith(text, kScheme); }

absl::StatusOr<EtcdAddress> ParseEtcdAddress(absl::string_view text) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' ", why, "; write etcd://HOST:PORT[,HOST:PORT...][/PREFIX]"));
  };
  absl::string_view rest = absl::StripPrefix(text, kScheme);
  const std::size_t slash = rest.find('/');
  EtcdAddress address{.members = {}, .prefix = "ddprun"};
  if (slash != absl::string_view::npos) {
    const absl::string_view prefix = absl::StripSuffix(rest.substr(slash + 1), "/");
    if (!prefix.empty()) address.prefix = std::string(prefix);
    rest = rest.substr(0, slash);
  }
  for (const absl::string_view member : absl::StrSplit(rest, ',')) {
    const std::size_t colon = member.rfind(':');
    int port = 0;
    if (colon == absl::string_view::npos || colon == 0 ||
        !absl::SimpleAtoi(member.substr(colon + 1), &port) || port < 1 || port > kPortMax) {
      return wrong(member.empty() ? "names no member of etcd"
                                  : absl::StrCat("names the member '", member,
                                                 "' of etcd without host or port"));
    }
    address.members.emplace_back(member);
  }
  if (address.members.size() > kEtcdMembersMax) {
    return wrong(absl::StrCat("names ", address.members.size(), " members of etcd, more than ",
                              kEtcdMembersMax));
  }
  return address;
}

}  // namespace ddprun
