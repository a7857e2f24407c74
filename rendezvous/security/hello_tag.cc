// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/hello_tag.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {
namespace {

// In hexadecimal digits. Together they must fit in a label of a host name, which has 63 characters
// at most.
constexpr std::size_t kNumberDigits = 16;
constexpr std::size_t kMacDigits = 32;

std::string MacOf(const std::string& hello_key, absl::string_view number) {
  unsigned char mac[EVP_MAX_MD_SIZE] = {};
  unsigned size = 0;
  HMAC(EVP_sha256(), hello_key.data(), static_cast<int>(hello_key.size()),
       reinterpret_cast<const unsigned char*>(number.data()), number.size(), mac, &size);
  return absl::BytesToHexString({reinterpret_cast<const char*>(mac), kMacDigits / 2});
}

}  // namespace

std::string MakeTaggedName(const std::string& hello_key) {
  unsigned char random[kNumberDigits / 2];
  if (hello_key.empty() || RAND_bytes(random, sizeof random) != 1) return kServiceName;
  const std::string number =
      absl::BytesToHexString({reinterpret_cast<const char*>(random), sizeof random});
  return absl::StrCat(number, MacOf(hello_key, number), ".", kServiceName);
}

std::optional<std::string> ReadTag(const std::string& hello_key, absl::string_view server_name) {
  if (hello_key.empty() || !absl::ConsumeSuffix(&server_name, kServiceName) ||
      !absl::ConsumeSuffix(&server_name, ".") || server_name.size() != kNumberDigits + kMacDigits) {
    return std::nullopt;
  }
  const absl::string_view number = server_name.substr(0, kNumberDigits);
  const std::string mac = MacOf(hello_key, number);
  if (CRYPTO_memcmp(mac.data(), server_name.data() + kNumberDigits, kMacDigits) != 0) {
    return std::nullopt;
  }
  return std::string(number);
}

}  // namespace ddprun
