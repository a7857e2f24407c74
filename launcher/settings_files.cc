// SPDX-License-Identifier: Apache-2.0
#include "launcher/settings_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "launcher/limits.h"
#include "rendezvous/env_file.h"
#include "rendezvous/owned_fd.h"

namespace ddprun {
namespace {

absl::Status CannotRead(const std::string& path, int error) {
  const std::string sentence = absl::StrCat("cannot read ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(sentence) : absl::PermissionDeniedError(sentence);
}

}  // namespace

absl::StatusOr<std::string> ReadSettingsFile(const std::string& path) {
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return CannotRead(path, errno);
  // One more than is allowed, in one piece: a secret in it is not left behind by a text that grows.
  std::string text(kSettingsFileBytesMax + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = read(file.get(), text.data() + size, text.size() - size);
    if (count < 0) return CannotRead(path, errno);
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  if (size > kSettingsFileBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has more than ", kSettingsFileBytesMax,
                                                   " bytes; is it a file of settings?"));
  }
  text.resize(size);
  return text;
}

absl::StatusOr<Token> ReadTokenOfEnvFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return CannotRead(path, errno);
  if (S_ISREG(info.st_mode) && (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " has ", kTokenVariable,
                     " and can be read by others; take that away with `chmod 600 ", path, "`"));
  }
  absl::StatusOr<std::string> text = ReadSettingsFile(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<EnvFile> file = ParseEnvFile(*text, path);
  Wipe(*text);
  if (!file.ok()) return file.status();
  absl::StatusOr<Token> token =
      Token::Parse(file->token, absl::StrCat(kTokenVariable, " of ", path));
  Wipe(file->token);
  return token;
}

void SetVariables(const std::vector<std::pair<std::string, std::string>>& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 0);
}

}  // namespace ddprun
