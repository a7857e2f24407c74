// SPDX-License-Identifier: Apache-2.0
#include "launcher/notices/metadata_service.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launcher/base/limits.h"
#include "proto/text.h"

namespace ddprun {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

NoticeLook Unknown(std::string why) {
  NoticeLook look;
  look.error = std::move(why);
  return look;
}

NoticeLook Unexpected(const HttpAnswer& answer) {
  return Unknown(absl::StrCat("it answered with HTTP status ", answer.status));
}

NoticeLook NotUnderstood() { return Unknown("its answer is none that is documented"); }

std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return "";
  return CutText(OneLine(found->get<std::string>()), kMetadataTextBytesMax);
}

milliseconds Until(absl::Time time, absl::Time now) {
  return std::max(milliseconds(0), absl::ToChronoMilliseconds(time - now));
}

// ---- AWS, IMDSv2: requests have a token, which a PUT gives; 401: it is no longer valid

class AwsMetadata : public MetadataService {
 public:
  HttpRequest Next() const override {
    if (token_.empty()) {
      return {.method = "PUT",
              .target = "/latest/api/token",
              .headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}},
              .timeout = kMetadataTimeout};
    }
    return {.target = "/latest/meta-data/spot/instance-action",
            .headers = {{"X-aws-ec2-metadata-token", token_}},
            .timeout = kMetadataTimeout};
  }

  std::optional<NoticeLook> OnAnswer(const HttpAnswer& answer, absl::Time now) override {
    if (token_.empty()) {
      if (answer.status != 200) return Unexpected(answer);
      token_ = std::string(absl::StripAsciiWhitespace(answer.body));
      const bool valid = !token_.empty() && token_.size() <= kMetadataTokenBytesMax &&
                         std::all_of(token_.begin(), token_.end(),
                                     [](unsigned char c) { return absl::ascii_isgraph(c); });
      if (valid) return std::nullopt;
      token_.clear();
      return NotUnderstood();
    }
    if (answer.status == 401) {
      token_.clear();
      if (!std::exchange(renewed_, true)) return std::nullopt;
    }
    if (answer.status != 401) renewed_ = false;
    if (answer.status == 404) return NoticeLook{};
    if (answer.status != 200) return Unexpected(answer);
    return Action(answer.body, now);
  }

 private:
  // {"action": "terminate", "time": "2017-09-18T08:22:00Z"}
  static NoticeLook Action(const std::string& body, absl::Time now) {
    const json object = json::parse(body, nullptr, /*allow_exceptions=*/false);
    const std::string action = object.is_object() ? Text(object, "action") : "";
    if (action.empty()) return NotUnderstood();
    const std::string text = Text(object, "time");
    NoticeLook look{.id = absl::StrCat(action, " ", text),
                    .reason = absl::StrCat("aws: spot instance-action ", action)};
    absl::Time time;
    if (absl::ParseTime(absl::RFC3339_full, text, &time, nullptr))
      look.remaining = Until(time, now);
    return look;
  }

  std::string token_;
  bool renewed_ = false;  // in this look
};

// ---- GCP: two values. The first request about the first one is answered at once, each later one
// when it changes.

class GcpMetadata : public MetadataService {
 public:
  HttpRequest Next() const override {
    std::string target = "/computeMetadata/v1/instance/";
    milliseconds timeout = kMetadataTimeout;
    if (asks_for_maintenance_) {
      target += "maintenance-event";
    } else {
      target += "preempted";
      if (!etag_.empty()) {
        absl::StrAppend(&target, "?wait_for_change=true&timeout_sec=", kMetadataInterval.count(),
                        "&last_etag=", etag_);
        timeout += kMetadataInterval;
      }
    }
    return {.target = target, .headers = {{"Metadata-Flavor", "Google"}}, .timeout = timeout};
  }

  std::optional<NoticeLook> OnAnswer(const HttpAnswer& answer, absl::Time) override {
    const bool maintenance = std::exchange(asks_for_maintenance_, false);
    if (answer.status != 200) return Unexpected(answer);
    const absl::string_view value = absl::StripAsciiWhitespace(answer.body);
    if (maintenance) {
      if (value == "NONE" || value == "MIGRATE_ON_HOST_MAINTENANCE") return NoticeLook{};
      if (value != "TERMINATE_ON_HOST_MAINTENANCE") return NotUnderstood();
      return NoticeLook{.id = std::string(value),
                        .remaining = kGcpMaintenanceTime,
                        .reason = absl::StrCat("gcp: maintenance-event ", value)};
    }
    etag_ = TagOf(answer);
    if (value == "TRUE")
      return NoticeLook{
          .id = "preempted", .remaining = kGcpPreemptionTime, .reason = "gcp: preempted"};
    if (value != "FALSE") return NotUnderstood();
    asks_for_maintenance_ = true;
    return std::nullopt;
  }

 private:
  // "" if it has none that may be in a URL.
  static std::string TagOf(const HttpAnswer& answer) {
    const auto tag = answer.headers.find("etag");
    if (tag == answer.headers.end() || tag->second.size() > kMetadataTextBytesMax) return "";
    const bool plain = std::all_of(tag->second.begin(), tag->second.end(),
                                   [](unsigned char c) { return absl::ascii_isalnum(c); });
    return plain ? tag->second : "";
  }

  std::string etag_;
  bool asks_for_maintenance_ = false;
};

// ---- Azure: the events of all machines of a set, which are told apart by their names

class AzureMetadata : public MetadataService {
 public:
  HttpRequest Next() const override {
    if (name_.empty()) {
      return {.target = "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
              .headers = {{"Metadata", "true"}},
              .timeout = kMetadataTimeout};
    }
    return {.target = "/metadata/scheduledevents?api-version=2020-07-01",
            .headers = {{"Metadata", "true"}},
            .timeout = has_answered_ ? kMetadataTimeout : kAzureFirstTimeout};
  }

  std::optional<NoticeLook> OnAnswer(const HttpAnswer& answer, absl::Time now) override {
    if (answer.status != 200) return Unexpected(answer);
    if (name_.empty()) {
      name_ = std::string(absl::StripAsciiWhitespace(answer.body));
      if (!name_.empty() && name_.size() <= kMetadataTextBytesMax) return std::nullopt;
      name_.clear();
      return NotUnderstood();
    }
    has_answered_ = true;
    const json object = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object() || !object.contains("Events") || !object["Events"].is_array())
      return NotUnderstood();
    NoticeLook first;
    for (const json& event : object["Events"]) {
      if (!IsForThisMachine(event)) continue;
      NoticeLook look = Event(event, now);
      if (first.id.empty() || look.remaining < first.remaining) first = std::move(look);
    }
    return first;
  }

 private:
  // A Freeze is a pause of some seconds: the machine stays.
  bool IsForThisMachine(const json& event) const {
    if (!event.is_object()) return false;
    const std::string type = Text(event, "EventType");
    if (type != "Preempt" && type != "Terminate" && type != "Reboot" && type != "Redeploy")
      return false;
    const auto resources = event.find("Resources");
    return resources != event.end() && resources->is_array() &&
           std::any_of(resources->begin(), resources->end(), [this](const json& one) {
             return one.is_string() && one.get_ref<const std::string&>() == name_;
           });
  }

  // NotBefore is "Mon, 19 Sep 2016 18:29:47 GMT", and empty once the event has begun.
  static NoticeLook Event(const json& event, absl::Time now) {
    const std::string text = Text(event, "NotBefore");
    NoticeLook look{.id = absl::StrCat(Text(event, "EventId"), " ", text),
                    .remaining = milliseconds(0),
                    .reason = absl::StrCat("azure: ", Text(event, "EventType"))};
    absl::Time time;
    if (absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", text, &time, nullptr))
      look.remaining = Until(time, now);
    return look;
  }

  std::string name_;
  bool has_answered_ = false;  // the first answer about events takes up to two minutes
};

}  // namespace

std::unique_ptr<MetadataService> MakeMetadataService(NoticeSource source,
                                                     const GetVariable& get_variable) {
  std::unique_ptr<MetadataService> service;
  const char* variable = nullptr;
  if (source == NoticeSource::kAws) {
    service = std::make_unique<AwsMetadata>();
    variable = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
  } else if (source == NoticeSource::kGcp) {
    service = std::make_unique<GcpMetadata>();
    variable = "GCE_METADATA_HOST";
  } else if (source == NoticeSource::kAzure) {
    service = std::make_unique<AzureMetadata>();
    variable = "AZURE_POD_IDENTITY_AUTHORITY_HOST";
  } else {
    return nullptr;
  }
  const std::string given = get_variable(variable).value_or("");
  absl::string_view server = given.empty() ? absl::string_view("169.254.169.254") : given;
  absl::ConsumePrefix(&server, "http://");
  ParseEndpoint(std::string(server.substr(0, server.find('/'))), kHttpPort, service->server);
  return service;
}

}  // namespace ddprun
