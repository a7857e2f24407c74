// SPDX-License-Identifier: Apache-2.0
// The run's secret: 256 random bits, shared by all nodes of a run. Written as 64 hexadecimal
// digits in DDPRUN_TOKEN, in a file of --token-file, or in the token file that is made on first
// use.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/base/env_file.h"
#include "rendezvous/security/secret_page.h"

namespace ddprun {

class Token {
 public:
  static constexpr std::size_t kBytes = 32;
  static constexpr std::size_t kDigits = 2 * kBytes;

  // `text`: 64 hexadecimal digits, with white space around them. INVALID_ARGUMENT otherwise, or if
  // the digits are plainly not random; the sentence begins with `source` and never has the text.
  static absl::StatusOr<Token> Parse(absl::string_view text, const std::string& source);

  const unsigned char* bytes() const { return page_.data(); }

 private:
  SecretPage page_;  // the first kBytes of it
};

// The key of the tags that members show in their ClientHello (hello_tag.h): HMAC-SHA256 of the
// secret, from which the secret cannot be computed.
std::string DeriveHelloKey(const Token& token);

// As Parse() reads it. The caller wipes it.
std::string ToDigits(const Token& token);

// Removes DDPRUN_TOKEN from this process: its text is wiped in place, also in /proc/PID/environ,
// and no child inherits it. Call it before the first thread. Absent: it was not set.
std::optional<absl::StatusOr<Token>> TakeTokenVariable();

// Reads a secret from a file with the permissions that ssh requires of keys: PERMISSION_DENIED
// unless it belongs to this user or root and others cannot read it. NOT_FOUND, INVALID_ARGUMENT:
// one sentence too.
absl::StatusOr<Token> ReadTokenFile(const std::string& path);

// The same for a file that the user has named: it may also belong to another user who gives this
// one access through its group or an access list.
absl::StatusOr<Token> ReadNamedTokenFile(const std::string& path);

using GetVariable = std::function<std::optional<std::string>(const std::string& name)>;

// A GetVariable: of this process's environment.
std::optional<std::string> ReadVariable(const std::string& name);

// systemd's credential "ddprun-token" (LoadCredential=), in CREDENTIALS_DIRECTORY. Absent: this
// process has none.
std::optional<std::string> CredentialTokenPath(const GetVariable& get_variable);

// ~/.config/ddprun/token, or in XDG_CONFIG_HOME. FAILED_PRECONDITION if neither is set.
absl::StatusOr<std::string> DefaultTokenPath(const GetVariable& get_variable);

// Reads the file, or creates it with a new secret. If several processes do so at once, one creates
// it and all read the same secret.
absl::StatusOr<Token> ReadOrMakeTokenFile(const std::string& path);

}  // namespace ddprun
