// SPDX-License-Identifier: Apache-2.0
// Which calls are affected, and how: the rules of the control file (fault_shim.c).
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Nothing of this may take the place of a symbol of the program.
#define HIDDEN __attribute__((visibility("hidden")))

enum Call {
  kOpen,
  kRead,
  kWrite,
  kFsync,
  kTruncate,
  kRename,
  kUnlink,
  kMkdir,
  kStat,
  kOpendir,
  kLock,
  kClose,
  kAccept,
  kSocket,
  kPipe,
  kEpollCreate,
  kEpollCtl,
  kEventfd,
  kSignalfd,
  kTimerfd,
  kExec,
  kThread,
  kCalls
};

struct Effect {
  bool fails;   // errno is set
  size_t size;  // of the transfer, at most
};

// Makes the call wait, or says that it fails. `fd` < 0: it is on `path`, relative to `folder`.
HIDDEN struct Effect Affect(enum Call call, int fd, int folder, const char* path, size_t size);
HIDDEN bool FailsPath(enum Call call, int folder, const char* path);
HIDDEN bool FailsFd(enum Call call, int fd);
HIDDEN bool Fails(enum Call call);  // that is on neither
