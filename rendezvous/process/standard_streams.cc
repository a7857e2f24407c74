// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/process/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace ddprun {
namespace {

int error = 0;

void OpenStandardStreams(int, char**, char**) {
  int fd = -1;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd < 0) {
    error = errno;
  } else {
    close(fd);
  }
}

// System V ABI: of the executable, called before the initializers of its libraries.
__attribute__((section(".preinit_array"),
               used)) void (*const open_first)(int, char**, char**) = OpenStandardStreams;

}  // namespace

bool StandardStreamsAreOpen() {
  if (error != 0) errno = error;
  return error == 0;
}

}  // namespace ddprun
