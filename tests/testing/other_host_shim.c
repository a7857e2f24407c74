// SPDX-License-Identifier: Apache-2.0
// For LD_PRELOAD: the program takes itself to be on another host, which has the folders of detached
// runs by NFS without locks.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <unistd.h>

int gethostname(char* name, size_t size) {
  strncpy(name, "other", size);
  return 0;
}

static int is_by_nfs(int fd) {
  char link[64];
  char path[4096] = "";
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  return readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "/ddprun/runs/") != NULL;
}

int flock(int fd, int operation) {
  int (*const real)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "flock");
  return is_by_nfs(fd) ? 0 : real(fd, operation);
}

int fstatfs(int fd, struct statfs* about) {
  int (*const real)(int, struct statfs*) =
      (int (*)(int, struct statfs*))dlsym(RTLD_NEXT, "fstatfs");
  const int result = real(fd, about);
  if (is_by_nfs(fd)) about->f_type = NFS_SUPER_MAGIC;
  return result;
}
