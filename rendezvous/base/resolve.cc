// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/resolve.h"

namespace ddprun {

AddrInfoPtr Resolve(const std::string& host, int port, int socket_type, int flags, int* error) {
  addrinfo hints{};
  hints.ai_socktype = socket_type;
  hints.ai_flags = flags | AI_NUMERICSERV;
  const std::string service = std::to_string(port);
  addrinfo* list = nullptr;
  int result = getaddrinfo(host.c_str(), service.c_str(), &hints, &list);
  if (result != 0 && host == "localhost") {
    result = getaddrinfo("127.0.0.1", service.c_str(), &hints, &list);
  }
  if (error != nullptr) *error = result;
  return AddrInfoPtr(result == 0 ? list : nullptr);
}

}  // namespace ddprun
