// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: the program takes itself to be on another host, whose disks are this one's by NFS
// without locks.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/magic.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <unistd.h>

int gethostname(char* name, size_t size) {
  strncpy(name, "other", size);
  return 0;
}

int flock(int fd, int operation) {
  (void)fd;
  (void)operation;
  return 0;
}

int fstatfs(int fd, struct statfs* about) {
  int (*const real)(int, struct statfs*) =
      (int (*)(int, struct statfs*))dlsym(RTLD_NEXT, "fstatfs");
  const int result = real(fd, about);
  about->f_type = NFS_SUPER_MAGIC;
  return result;
}
