// SPDX-License-Identifier: Apache-2.0
// The text of an errno for error sentences.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

namespace ddprun {

// strerror()'s text; if the process or the machine has run out of descriptors also what to do,
// since the rest of the sentence is usually about something else.
inline std::string ErrnoText(int error) {
  if (error == EMFILE) {
    return "Too many open files in this process; raise its limit (`ulimit -n`)";
  }
  if (error == ENFILE) {
    return "Too many open files on this machine; raise its limit (`sysctl fs.file-max`)";
  }
  return std::strerror(error);
}

// A call failed because no descriptor is left.
inline bool IsOutOfDescriptors(int error) { return error == EMFILE || error == ENFILE; }

// accept() failed, and would again at once: the caller pauses.
inline bool IsOutOfResources(int error) {
  return IsOutOfDescriptors(error) || error == ENOBUFS || error == ENOMEM;
}

}  // namespace ddprun
