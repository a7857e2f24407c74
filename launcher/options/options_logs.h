// SPDX-License-Identifier: Apache-2.0
// Flags about what workers say: where it goes and how it is shown. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/base/flags.h"
#include "launcher/options/log_specs.h"

namespace ddprun {

enum class LogFold {
  kAuto,  // where the console is a terminal: what a program reads keeps every rank's line
  kAlways,
  kNever,
};

struct LogOptions {
  std::string log_dir;                     // empty: none was given
  StreamSpec redirects;                    // to files only
  StreamSpec tee;                          // to files, and to the console even if redirected
  std::set<int> local_ranks;               // that the console shows; empty: all
  std::vector<std::string> out_filters;    // lines with one of them are in a file of their own, too
  std::vector<std::string> err_filters;    // the same for stderr
  std::optional<std::string> line_prefix;  // a template; absent: [rank], or [host:rank]
  LogRotation rotation;
  LogFold fold = LogFold::kAuto;
};

extern const std::vector<Flag> kLogFlags;

// torchrun knows a default of --log-line-prefix-template that is called otherwise than PET_*.
void AddLogVariables(const GetVariable& get_variable, Values& values);

LogOptions ReadLogOptions(Reader& reader);

}  // namespace ddprun
