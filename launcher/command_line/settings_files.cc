// SPDX-License-Identifier: Apache-2.0
// The functions of settings.h that read files and set variables.
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/command_line/settings.h"
#include "proto/input_file.h"
#include "rendezvous/base/env_file.h"

namespace ddprun {
namespace {

absl::Status CannotRead(const std::string& path, const absl::Status& reason) {
  const std::string sentence = absl::StrCat("cannot read ", path, ": ", reason.message());
  if (!absl::IsInvalidArgument(reason)) return absl::Status(reason.code(), sentence);
  return absl::InvalidArgumentError(absl::StrCat(sentence, "; is it a file of settings?"));
}

}  // namespace

absl::StatusOr<std::string> ReadSettingsFile(const std::string& path) {
  absl::StatusOr<InputFile> file = ReadInput(path, kSettingsFileBytesMax);
  if (!file.ok()) return CannotRead(path, file.status());
  return std::move(file->text);
}

absl::StatusOr<Token> ReadTokenOfEnvFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0)
    return CannotRead(path, absl::NotFoundError(std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", kTokenVariable,
                     " and is not a regular file; put the secret in a file of mode 0600, or set ",
                     kTokenVariable));
  }
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        path, " has ", kTokenVariable, " and can be read by others; run `chmod 600 ", path, "`"));
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
