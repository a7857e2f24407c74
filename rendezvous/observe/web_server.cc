// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/web_server.h"

#include "absl/strings/str_cat.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/observe/module_entry.h"

namespace ddprun {

absl::StatusOr<std::unique_ptr<WebServer>> StartWebServer(int port, WebHandler handler) {
  const absl::StatusOr<void*> entry = WebModuleEntry(kWebModuleEntry, "pages are served");
  if (!entry.ok()) return entry.status();
  std::string error;
  const SignalsBlocked blocked;
  std::unique_ptr<WebServer> server(
      reinterpret_cast<StartWebFunction>(*entry)(port, &handler, &error));
  if (server == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot serve a page at 127.0.0.1:", port, " (",
                                               error,
                                               "); is the port in use? Give another one"));
  }
  return server;
}

}  // namespace ddprun
