// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/module_entry.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/own_program.h"

namespace ddprun {

absl::StatusOr<void*> WebModuleEntry(const char* name, const char* use) {
  const std::string path = (OwnProgram().parent_path() / kWebModuleName).string();
  // Never closed: its code may be running until the process ends.
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return absl::UnavailableError(
        absl::StrCat(use, " by ", kWebModuleName,
                     ", which belongs beside this program and cannot be loaded: ", dlerror()));
  }
  void* const entry = dlsym(module, name);
  if (entry == nullptr) {
    return absl::UnavailableError(
        absl::StrCat(path, " is of another version; install the one that came with this program"));
  }
  return entry;
}

}  // namespace ddprun
