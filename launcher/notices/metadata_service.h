// SPDX-License-Identifier: Apache-2.0
// What the metadata servers of clouds are asked, and what their answers say of this machine. Pure:
// the requests are sent by notice_watch.h.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "launcher/base/flags.h"
#include "launcher/notices/http_request.h"
#include "launcher/options/options.h"

namespace ddprun {

// What a source says when it is asked.
struct NoticeLook {
  std::string id;  // of the notice that stands; empty: none does
  std::optional<std::chrono::milliseconds> remaining;  // absent: it does not say
  std::string reason;
  bool unsure = false;  // believed if the next look says the same
  std::string error;    // why nothing is known; empty: the others are
};

class MetadataService {
 public:
  virtual ~MetadataService() = default;
  virtual HttpRequest Next() const = 0;
  // Of the request before. Absent: the look goes on with Next().
  virtual std::optional<NoticeLook> OnAnswer(const HttpAnswer& answer, absl::Time now) = 0;

  Endpoint server;
};

// Null: `source` is no cloud. Its server is that of the cloud's own variable, else 169.254.169.254:
// AWS_EC2_METADATA_SERVICE_ENDPOINT (http://HOST[:PORT]), GCE_METADATA_HOST (HOST[:PORT]),
// AZURE_POD_IDENTITY_AUTHORITY_HOST (http://HOST[:PORT]).
std::unique_ptr<MetadataService> MakeMetadataService(NoticeSource source,
                                                     const GetVariable& get_variable);

}  // namespace ddprun
