// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/rdzv_conf.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/flag_names.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

constexpr double kSecondsMax = 30.0 * 24 * 3600;
constexpr int kAttemptsMax = 1'000'000;
// torchrun's defaults; their product is its 15 s.
constexpr std::chrono::milliseconds kIntervalDefault{5000};
constexpr int kAttemptsDefault = 3;

enum class Meaning {
  kJoinTimeout,
  kLastCall,
  kKeepAliveInterval,
  kKeepAliveAttempts,
  kIsHost,
  kStoreType,
  kNoEffect,
  kRefused,
};

struct Key {
  const char* name;
  Meaning meaning;
  const char* why;  // of kNoEffect and kRefused
};

const Key kKeys[] = {
    {"join_timeout", Meaning::kJoinTimeout, ""},
    {"timeout", Meaning::kJoinTimeout, ""},
    {"last_call_timeout", Meaning::kLastCall, ""},
    {"keep_alive_interval", Meaning::kKeepAliveInterval, ""},
    {"keep_alive_max_attempt", Meaning::kKeepAliveAttempts, ""},
    {"is_host", Meaning::kIsHost, ""},
    {"store_type", Meaning::kStoreType, "the service is always reached by TCP"},
    {"close_timeout", Meaning::kNoEffect, "ddprun never waits for a run to be closed"},
    {"heartbeat_timeout", Meaning::kNoEffect, "--lease limits how long a node may be silent"},
    {"read_timeout", Meaning::kNoEffect, "--join-timeout limits the whole rendezvous"},
    {"cas_backoff_max_seconds", Meaning::kNoEffect, "nodes do not compete for one key"},
    {"protocol", Meaning::kNoEffect, "connections are TLS unless --insecure is given"},
    {"rank", Meaning::kNoEffect, "--node-rank sets it"},
    {"use_libuv", Meaning::kNoEffect, "the service has a server of its own"},
    {"etcd_prefix", Meaning::kRefused, "the service keeps its runs apart by --rdzv-id"},
    {"ssl_cert", Meaning::kRefused, "give --tls-cert FILE"},
    {"cert", Meaning::kRefused, "give --tls-cert FILE"},
    {"ssl_cert_key", Meaning::kRefused, "give --tls-key FILE"},
    {"key", Meaning::kRefused, "give --tls-key FILE"},
    {"ca_cert", Meaning::kRefused, "give --tls-ca FILE"},
    {"cacert", Meaning::kRefused, "give --tls-ca FILE"},
};

// The booleans that torchrun accepts.
std::optional<bool> ParseBool(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* yes : {"1", "true", "t", "yes", "y"}) {
    if (lower == yes) return true;
  }
  for (const char* no : {"0", "false", "f", "no", "n"}) {
    if (lower == no) return false;
  }
  return std::nullopt;
}

std::vector<std::string> KeyNames() {
  std::vector<std::string> names;
  for (const Key& key : kKeys) {
    if (key.meaning != Meaning::kRefused) names.emplace_back(key.name);
  }
  return names;
}

class ConfReader {
 public:
  ConfReader(Reader& reader, const Value& whole) : reader_(reader), whole_(whole) {}

  void Read(const std::string& name, const std::string& text) {
    const auto* key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                   [&](const Key& one) { return name == one.name; });
    if (key == std::end(kKeys)) return FailUnknown(name);
    const Value value{text, absl::StrCat(whole_.source, " ", name)};
    if (text.empty()) return reader_.Fail(value, "a value; write KEY=VALUE,KEY=VALUE");
    Take(*key, value);
  }

  RdzvConf Finish() {
    if (interval_.has_value() || attempts_.has_value()) {
      const std::chrono::milliseconds lease =
          interval_.value_or(kIntervalDefault) * attempts_.value_or(kAttemptsDefault);
      conf_.lease = std::min<std::chrono::milliseconds>(lease, kLeaseMax);
    }
    return std::move(conf_);
  }

 private:
  void Take(const Key& key, const Value& value) {
    switch (key.meaning) {
      case Meaning::kJoinTimeout:
        conf_.join_timeout = reader_.Seconds(value, kSecondsMax);
        return;
      case Meaning::kLastCall:
        conf_.last_call =
            reader_.Seconds(value, static_cast<double>(std::chrono::seconds(kLastCallMax).count()));
        return;
      case Meaning::kKeepAliveInterval:
        interval_ = reader_.Seconds(value, kSecondsMax);
        return;
      case Meaning::kKeepAliveAttempts: {
        int attempts = 0;
        if (!absl::SimpleAtoi(value.text, &attempts) || attempts < 1 || attempts > kAttemptsMax)
          return reader_.Fail(value, absl::StrCat("a whole number from 1 to ", kAttemptsMax));
        attempts_ = attempts;
        return;
      }
      case Meaning::kIsHost:
        conf_.is_host = ParseBool(value.text);
        if (!conf_.is_host.has_value()) reader_.Fail(value, "true or false");
        return;
      case Meaning::kStoreType:
        if (absl::AsciiStrToLower(value.text) != "tcp") {
          return reader_.FailWith(absl::StrCat(
              value.source, " '", value.text,
              "' is not known: nodes meet at a service, not in a file; give --rdzv-endpoint "
              "HOST:PORT"));
        }
        conf_.notes.push_back(absl::StrCat(value.source, " has no effect: ", key.why));
        return;
      case Meaning::kNoEffect:
        conf_.notes.push_back(absl::StrCat(value.source, " has no effect: ", key.why));
        return;
      case Meaning::kRefused:
        return reader_.FailWith(absl::StrCat(
            value.source, " is a setting of etcd, which ddprun does not use; ", key.why));
    }
  }

  void FailUnknown(const std::string& name) {
    reader_.FailWith(
        absl::StrCat(whole_.source, " has the unknown key '", name, "'", DidYouMeanKey(name),
                     "; most used are join_timeout, last_call_timeout, keep_alive_interval, "
                     "keep_alive_max_attempt and is_host"));
  }

  // Keys have _, where DidYouMean() expects -.
  static std::string DidYouMeanKey(const std::string& name) {
    std::vector<std::string> names;
    for (const std::string& known : KeyNames()) names.push_back(WithDashes(known));
    std::string nearest = NearestName(name, names);
    if (nearest.empty()) return "";
    std::replace(nearest.begin(), nearest.end(), '-', '_');
    return absl::StrCat(" (did you mean ", nearest, "?)");
  }

  Reader& reader_;
  const Value& whole_;
  RdzvConf conf_;
  std::optional<std::chrono::milliseconds> interval_;
  std::optional<int> attempts_;
};

}  // namespace

RdzvConf ReadRdzvConf(Reader& reader) {
  const Value* whole = reader.Find("--rdzv-conf");
  if (whole == nullptr || absl::StripAsciiWhitespace(whole->text).empty()) return {};
  ConfReader conf(reader, *whole);
  std::vector<std::string> seen;
  for (const absl::string_view pair : absl::StrSplit(whole->text, ',')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(parts.first));
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      reader.FailWith(
          absl::StrCat(whole->source, " has the key '", name, "' twice; leave one of them out"));
    }
    seen.push_back(name);
    conf.Read(name, std::string(absl::StripAsciiWhitespace(parts.second)));
  }
  return conf.Finish();
}

}  // namespace ddprun
