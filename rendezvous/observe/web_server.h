// SPDX-License-Identifier: Apache-2.0
// Serves HTTP to browsers on this machine, with CivetWeb.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun {

struct WebRequest {
  std::string method;
  std::string path;
  std::string query;  // after the '?'
  std::string host;   // of its header, as are these
  std::string cookie;
  std::string origin;
};

class WebReply {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  virtual ~WebReply() = default;
  // All of it. Or, with Begin() and then Write(), one that goes on.
  virtual void Send(int status, const Headers& headers, const std::string& body) = 0;
  virtual void Begin(int status, const Headers& headers) = 0;
  // False: nobody reads any more, or nothing was read for kWebTimeout.
  virtual bool Write(const std::string& text) = 0;
};

// Called on several threads, kWebConnectionsMax at most; further requests wait.
using WebHandler = std::function<void(const WebRequest&, WebReply&)>;

class WebServer {
 public:
  // Waits until all calls of the handler have returned.
  virtual ~WebServer() = default;
  virtual int port() const = 0;
};

// Listens on the loopback addresses; port 0: one that is free. UNAVAILABLE: one sentence.
absl::StatusOr<std::unique_ptr<WebServer>> StartWebServer(int port, WebHandler handler);

// ---- Its function in kWebModuleName

inline constexpr char kWebModuleEntry[] = "ddprun_start_web";

// Null: `*error` says why.
using StartWebFunction = WebServer* (*)(int port, WebHandler* handler, std::string* error);

}  // namespace ddprun
