// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/output_file.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

constexpr char kDigitOf[] = "0123456789abcdef";

// Fewer different digits than this among 64 random ones are practically impossible: somebody typed
// them.
constexpr int kDifferentDigitsMin = 8;
// Changed with every change of the derivation.
constexpr char kHelloKeyInfo[] = "ddprun v1 client hello";
constexpr char kHowToMake[] =
    "run `openssl rand -hex 32` once, and give what it prints to all nodes of the run";

constexpr char kOtherWays[] = "; give the run's secret with DDPRUN_TOKEN or --token-file";

int DigitValue(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(digit));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

enum class TokenOwner { kSelfOrRoot, kAnybody };

absl::Status CheckOwner(const std::string& path, const struct stat& info, TokenOwner owner) {
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("the token file ", path, " is not a file"));
  }
  const bool ours = info.st_uid == geteuid();
  if (!ours && info.st_uid != 0 && owner == TokenOwner::kSelfOrRoot) {
    return absl::PermissionDeniedError(
        absl::StrCat("the token file ", path, " belongs to user ", info.st_uid, " and not to you (",
                     geteuid(), ") or root; a user who can change it could join your runs"));
  }
  // Another user's file gives access through its group; an access list, as systemd's credentials
  // have, shows in the group's bits too. Root may have named a file that others share.
  const bool is_shared = !ours || (info.st_uid == 0 && owner == TokenOwner::kAnybody);
  if ((info.st_mode & (is_shared ? 027 : 077)) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "the token file ", path, " can be read by others (mode ", absl::Hex((info.st_mode >> 6) & 7),
      absl::Hex((info.st_mode >> 3) & 7), absl::Hex(info.st_mode & 7),
      "); take that away with `chmod ", is_shared ? "640 " : "600 ", path, "`"));
}

absl::Status CannotRead(const std::string& path, int error) {
  const std::string sentence =
      absl::StrCat("cannot read the token file ", path, ": ", ErrnoText(error), kOtherWays);
  return error == ENOENT || error == ENOTDIR ? absl::NotFoundError(sentence)
                                             : absl::PermissionDeniedError(sentence);
}

// Makes the folder and the missing ones above it. The error names the one that cannot be made: what
// fails after it would only say that there is no such folder.
absl::Status MakeFolder(const std::filesystem::path& folder, mode_t mode, const std::string& file) {
  if (mkdir(folder.c_str(), mode) == 0) return absl::OkStatus();
  if (errno == ENOENT && folder.has_relative_path() && folder.has_parent_path()) {
    if (absl::Status above = MakeFolder(folder.parent_path(), 0777, file); !above.ok())
      return above;
    if (mkdir(folder.c_str(), mode) == 0) return absl::OkStatus();
  }
  int error = errno;
  std::error_code unknown;
  if (error == EEXIST && std::filesystem::is_directory(folder, unknown)) return absl::OkStatus();
  if (error == EEXIST) error = ENOTDIR;  // a file, or a link to nothing
  return absl::UnavailableError(absl::StrCat("cannot make the folder ", folder.string(),
                                             " for the token file ", file, ": ", ErrnoText(error),
                                             kOtherWays));
}

// Creates the file atomically with a new secret; keeps one that exists.
absl::Status MakeTokenFile(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (absl::Status status = MakeFolder(folder, 0700, path); !status.ok()) return status;
  std::string made = absl::StrCat(path, ".XXXXXX");
  const OwnedFd file(mkostemp(made.data(), O_CLOEXEC));  // O_EXCL, mode 0600
  if (file.get() < 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot make the token file ", path, ": ", ErrnoText(errno), "; make ", folder.string(),
        " writable, or give the run's secret with DDPRUN_TOKEN or --token-file"));
  }
  SecretPage page;
  unsigned char* const random = page.data();
  unsigned char* const text = page.data() + Token::kBytes;
  bool good = RAND_priv_bytes(random, static_cast<int>(Token::kBytes)) == 1;
  for (std::size_t i = 0; i < Token::kBytes; ++i) {
    text[2 * i] = static_cast<unsigned char>(kDigitOf[random[i] >> 4]);
    text[2 * i + 1] = static_cast<unsigned char>(kDigitOf[random[i] & 15]);
  }
  text[Token::kDigits] = '\n';
  good = good &&
         WriteAll(file.get(), reinterpret_cast<const char*>(text), Token::kDigits + 1) == 0 &&
         fsync(file.get()) == 0;
  // link() fails where another process was first; its secret is used then.
  good = good && (link(made.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int failed_errno = errno;
  unlink(made.c_str());
  if (good) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot make the token file ", path, ": ", ErrnoText(failed_errno), kOtherWays));
}

}  // namespace

absl::StatusOr<Token> Token::Parse(absl::string_view text, const std::string& source) {
  const absl::string_view digits = absl::StripAsciiWhitespace(text);
  if (digits.size() != kDigits) {
    return absl::InvalidArgumentError(absl::StrCat(source, " has ", digits.size(),
                                                   " characters and must have ", kDigits,
                                                   " hexadecimal digits; ", kHowToMake));
  }
  Token token;
  unsigned char* const bytes = token.page_.data();
  unsigned seen = 0;
  for (std::size_t i = 0; i < kDigits; ++i) {
    const int value = DigitValue(digits[i]);
    if (value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, " has a character that is no hexadecimal digit, at place ", i + 1,
                       "; ", kHowToMake));
    }
    seen |= 1u << value;
    bytes[i / 2] = static_cast<unsigned char>((bytes[i / 2] << 4) | value);
  }
  if (__builtin_popcount(seen) < kDifferentDigitsMin) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, " is not random enough to be a secret; ", kHowToMake));
  }
  return token;
}

std::string DeriveHelloKey(const Token& token) {
  unsigned char key[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  if (HMAC(EVP_sha256(), token.bytes(), static_cast<int>(Token::kBytes),
           reinterpret_cast<const unsigned char*>(kHelloKeyInfo), sizeof kHelloKeyInfo - 1, key,
           &size) == nullptr) {
    return "";
  }
  return {reinterpret_cast<const char*>(key), size};
}

std::string ToDigits(const Token& token) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(token.bytes()), Token::kBytes});
}

std::optional<std::string> ReadVariable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::optional<absl::StatusOr<Token>> TakeTokenVariable() {
  char* const text = std::getenv(kTokenVariable);
  if (text == nullptr) return std::nullopt;
  absl::StatusOr<Token> token = Token::Parse(text, kTokenVariable);
  OPENSSL_cleanse(text, std::strlen(text));
  unsetenv(kTokenVariable);
  return token;
}

static absl::StatusOr<Token> ReadFrom(const std::string& path, TokenOwner owner) {
  // Does not block on a FIFO.
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return CannotRead(path, errno);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return CannotRead(path, errno);
  if (absl::Status status = CheckOwner(path, info, owner); !status.ok()) return status;
  SecretPage page;
  std::size_t size = 0;
  while (size < SecretPage::kBytes) {
    const ssize_t count = read(file.get(), page.data() + size, SecretPage::kBytes - size);
    if (count < 0) return CannotRead(path, errno);
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  return Token::Parse({reinterpret_cast<const char*>(page.data()), size},
                      absl::StrCat("the token file ", path));
}

absl::StatusOr<Token> ReadTokenFile(const std::string& path) {
  return ReadFrom(path, TokenOwner::kSelfOrRoot);
}

absl::StatusOr<Token> ReadNamedTokenFile(const std::string& path) {
  return ReadFrom(path, TokenOwner::kAnybody);
}

std::optional<std::string> CredentialTokenPath(const GetVariable& get_variable) {
  const std::optional<std::string> folder = get_variable("CREDENTIALS_DIRECTORY");
  if (!folder.has_value() || folder->empty() || folder->front() != '/') return std::nullopt;
  const std::string path = absl::StrCat(*folder, "/ddprun-token");
  if (access(path.c_str(), F_OK) != 0 && errno == ENOENT) return std::nullopt;
  return path;
}

absl::StatusOr<std::string> DefaultTokenPath(const GetVariable& get_variable) {
  const std::optional<std::string> config = get_variable("XDG_CONFIG_HOME");
  if (config.has_value() && !config->empty() && config->front() == '/') {
    return absl::StrCat(*config, "/ddprun/token");
  }
  const std::optional<std::string> home = get_variable("HOME");
  if (home.has_value() && !home->empty()) return absl::StrCat(*home, "/.config/ddprun/token");
  return absl::FailedPreconditionError(
      "HOME is not set, so there is no place for the run's secret; set it, or give the secret with "
      "DDPRUN_TOKEN or --token-file, or choose plain text with --insecure");
}

absl::StatusOr<Token> ReadOrMakeTokenFile(const std::string& path) {
  absl::StatusOr<Token> token = ReadTokenFile(path);
  if (!absl::IsNotFound(token.status())) return token;
  if (absl::Status status = MakeTokenFile(path); !status.ok()) return status;
  return ReadTokenFile(path);
}

}  // namespace ddprun
