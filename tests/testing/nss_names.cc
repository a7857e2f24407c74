// SPDX-License-Identifier: Apache-2.0
// A name service of the C library's, as those for LDAP or mDNS are: it knows the one name in
// DDPRUN_TEST_NAME, "NAME=IPV4", and DNS does not. Loaded by getaddrinfo() where nsswitch.conf has
// "hosts: ... ddpruntest" and LD_LIBRARY_PATH leads to it.
#include <arpa/inet.h>
#include <netdb.h>
#include <nss.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

extern "C" [[gnu::visibility("default")]] enum nss_status _nss_ddpruntest_gethostbyname4_r(
    const char* name, struct gaih_addrtuple** found, char* buffer, size_t size, int* error,
    int* host_error, int32_t* ttl) {
  const char* known = std::getenv("DDPRUN_TEST_NAME");
  const char* equals = known == nullptr ? nullptr : std::strchr(known, '=');
  const std::size_t length = std::strlen(name);
  in_addr address{};
  if (equals == nullptr || static_cast<std::size_t>(equals - known) != length ||
      std::strncmp(known, name, length) != 0 || inet_pton(AF_INET, equals + 1, &address) != 1) {
    *error = ENOENT;
    *host_error = HOST_NOT_FOUND;
    return NSS_STATUS_NOTFOUND;
  }
  if (size < length + 1 + alignof(gaih_addrtuple) + sizeof(gaih_addrtuple)) {
    *error = ERANGE;
    *host_error = NETDB_INTERNAL;
    return NSS_STATUS_TRYAGAIN;
  }
  gaih_addrtuple* tuple = *found;
  if (tuple == nullptr) {
    const std::size_t at = (length + alignof(gaih_addrtuple)) & ~(alignof(gaih_addrtuple) - 1);
    tuple = reinterpret_cast<gaih_addrtuple*>(buffer + at);
    *found = tuple;
  }
  *tuple = {};
  tuple->name = std::strcpy(buffer, name);
  tuple->family = AF_INET;
  tuple->addr[0] = address.s_addr;
  if (ttl != nullptr) *ttl = 0;
  return NSS_STATUS_SUCCESS;
}
