// SPDX-License-Identifier: Apache-2.0
// Serves HTTP with CivetWeb, which prometheus-cpp uses too.
#include <civetweb.h>

#include <string>
#include <utility>

#include "rendezvous/base/limits.h"
#include "rendezvous/observe/civet_end.h"
#include "rendezvous/observe/web_server.h"

namespace ddprun {
namespace {

constexpr char kAddress[] = "127.0.0.1";

std::string TextOr(const char* text) { return text == nullptr ? "" : text; }

class Reply final : public WebReply {
 public:
  explicit Reply(mg_connection* connection) : connection_(connection) {}

  void Send(int status, const Headers& headers, const std::string& body) override {
    Headers all = headers;
    all.emplace_back("Content-Length", std::to_string(body.size()));
    Begin(status, all);
    Write(body);
  }
  void Begin(int status, const Headers& headers) override {
    mg_response_header_start(connection_, status);
    for (const auto& [name, value] : headers)
      mg_response_header_add(connection_, name.c_str(), value.c_str(), -1);
    mg_response_header_send(connection_);
  }
  bool Write(const std::string& text) override {
    return mg_write(connection_, text.data(), text.size()) == static_cast<int>(text.size());
  }

 private:
  mg_connection* const connection_;
};

class CivetServer final : public WebServer {
 public:
  CivetServer(int port, WebHandler handler) : handler_(std::move(handler)) {
    const std::string ports = kAddress + (":" + std::to_string(port));
    const std::string threads = std::to_string(kWebConnectionsMax);
    const std::string timeout = std::to_string(kWebTimeout.count());
    const std::string request = std::to_string(kWebRequestBytesMax);
    const char* const options[] = {"listening_ports",
                                   ports.c_str(),
                                   "num_threads",
                                   threads.c_str(),
                                   "request_timeout_ms",
                                   timeout.c_str(),
                                   "max_request_size",
                                   request.c_str(),
                                   "enable_keep_alive",
                                   "no",
                                   nullptr};
    mg_callbacks callbacks{};
    context_ = mg_start(&callbacks, this, const_cast<const char**>(options));
    if (context_ == nullptr) return;
    mg_set_request_handler(context_, "/**", &CivetServer::Handle, this);
    mg_server_port bound[1];
    if (mg_get_server_ports(context_, 1, bound) == 1) port_ = bound[0].port;
  }
  ~CivetServer() override {
    if (context_ != nullptr) EndCivet(kAddress, port_, [this] { mg_stop(context_); });
  }

  int port() const override { return port_; }

 private:
  static int Handle(mg_connection* connection, void* self) {
    const mg_request_info& info = *mg_get_request_info(connection);
    const auto header = [connection](const char* name) {
      return TextOr(mg_get_header(connection, name));
    };
    Reply reply(connection);
    static_cast<CivetServer*>(self)->handler_({.method = TextOr(info.request_method),
                                               .path = TextOr(info.local_uri),
                                               .query = TextOr(info.query_string),
                                               .host = header("Host"),
                                               .cookie = header("Cookie"),
                                               .origin = header("Origin")},
                                              reply);
    return 1;  // answered
  }

  const WebHandler handler_;
  mg_context* context_ = nullptr;
  int port_ = 0;
};

}  // namespace

extern "C" WebServer* ddprun_start_web(int port, WebHandler* handler, std::string* error) {
  auto server = std::make_unique<CivetServer>(port, std::move(*handler));
  if (server->port() > 0) return server.release();
  *error = "CivetWeb could not begin";
  return nullptr;
}

}  // namespace ddprun
