// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/hello_tag.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

// In hexadecimal digits. Together they must fit in a label of a host name, which has 63 characters
// at most.
constexpr std::size_t kNumberDigits = 16;
constexpr std::size_t kHourDigits = 6;  // hours since 1970: enough until the year 3883
constexpr std::size_t kMacDigits = 32;
constexpr std::size_t kSaidDigits = kNumberDigits + 2 * kHourDigits;
static_assert(kSaidDigits + kMacDigits <= 63);

constexpr std::time_t kHour = 3600;

// 0 stays 0, which has a meaning of its own.
std::string HoursOf(std::time_t time) {
  constexpr std::time_t kMax = (std::time_t{1} << (4 * kHourDigits)) - 1;
  return absl::StrFormat("%06x", std::clamp<std::time_t>(time / kHour, 0, kMax));
}

std::time_t TimeOf(absl::string_view digits) {
  std::time_t hours = 0;
  return absl::SimpleHexAtoi(digits, &hours) ? hours * kHour : 0;
}

std::string MacOf(const std::string& hello_key, absl::string_view said) {
  unsigned char mac[EVP_MAX_MD_SIZE] = {};
  unsigned size = 0;
  HMAC(EVP_sha256(), hello_key.data(), static_cast<int>(hello_key.size()),
       reinterpret_cast<const unsigned char*>(said.data()), said.size(), mac, &size);
  return absl::BytesToHexString({reinterpret_cast<const char*>(mac), kMacDigits / 2});
}

}  // namespace

std::string MakeTaggedName(const std::string& hello_key, const CertificateTimes& times) {
  unsigned char random[kNumberDigits / 2];
  if (hello_key.empty() || RAND_bytes(random, sizeof random) != 1) return kServiceName;
  const std::string said =
      absl::StrCat(absl::BytesToHexString({reinterpret_cast<const char*>(random), sizeof random}),
                   HoursOf(times.made), HoursOf(times.end));
  return absl::StrCat(said, MacOf(hello_key, said), ".", kServiceName);
}

std::optional<HelloTag> ReadTag(const std::string& hello_key, absl::string_view server_name) {
  if (hello_key.empty() || !absl::ConsumeSuffix(&server_name, kServiceName) ||
      !absl::ConsumeSuffix(&server_name, ".") || server_name.size() != kSaidDigits + kMacDigits) {
    return std::nullopt;
  }
  const absl::string_view said = server_name.substr(0, kSaidDigits);
  const std::string mac = MacOf(hello_key, said);
  if (CRYPTO_memcmp(mac.data(), server_name.data() + kSaidDigits, kMacDigits) != 0) {
    return std::nullopt;
  }
  const std::time_t end = TimeOf(said.substr(kNumberDigits + kHourDigits));
  return HelloTag{.number = std::string(said.substr(0, kNumberDigits)),
                  .times = {.made = TimeOf(said.substr(kNumberDigits, kHourDigits)),
                            .end = end == 0 ? 0 : end + kHour - 1}};
}

}  // namespace ddprun
