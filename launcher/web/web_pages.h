// SPDX-License-Identifier: Apache-2.0
// What a browser gets: the page of a run, its stream of server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html), and, where it is allowed,
// orders to the run. WEB.md says who is let in.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/web/web_hub.h"
#include "rendezvous/observe/web_server.h"

namespace ddprun {

class WebPages {
 public:
  // Stops the run, or drains a node of it (a node id). The sentence for people.
  struct Control {
    std::function<absl::StatusOr<std::string>()> stop;
    std::function<absl::StatusOr<std::string>(const std::string& node)> drain;
  };

  // `token`: whoever knows it is let in. `control`: without functions there are no orders.
  WebPages(std::string token, WebHub& hub, Control control)
      : token_(std::move(token)), hub_(hub), control_(std::move(control)) {}

  // Threadsafe. A stream returns when the hub ends, or nobody reads it.
  void Answer(const WebRequest& request, WebReply& reply) const;

 private:
  bool IsLetIn(const WebRequest& request) const;
  void Open(const WebRequest& request, WebReply& reply) const;
  void Stream(WebReply& reply) const;
  void Order(const WebRequest& request, WebReply& reply) const;

  const std::string token_;
  WebHub& hub_;
  const Control control_;
};

// Random, of 128 bits, as hexadecimal digits. INTERNAL: the system gives none.
absl::StatusOr<std::string> RandomDigits();

}  // namespace ddprun
