// SPDX-License-Identifier: Apache-2.0
// Fault injection for tests: a library for LD_PRELOAD that makes chosen system calls hang, fail or
// transfer less than they were asked to. faults.h and faults.py are its front ends.
//
// DDPRUN_FAULTS names the control file. One rule per line; the file may be replaced (by rename) or
// removed at any time, and every process that has the library follows with its next call:
//
//   CALL[,CALL...] ACTION [path=PREFIX] [program=NAME] [from=N] [times=M]
//
//   CALL     open read write fsync truncate rename unlink mkdir stat opendir lock close
//            accept socket pipe epoll_create epoll_ctl eventfd signalfd timerfd exec
//            thread (pthread_create)
//            Each stands for all variants of that call (pwrite and writev are "write", access is
//            "stat", glob is "opendir", mkstemp is "open").
//   ACTION   hang         until the rule is gone; signals do not end it
//            delay=MS     then the call is made
//            short=BYTES  a read or write transfers at most so many
//            EIO, ENOSPC, EMFILE, ...  the call fails with that errno
//   path     the absolute path, or what the descriptor refers to (/proc/self/fd; "socket:" for
//            sockets), begins with PREFIX
//   program  program_invocation_short_name is NAME
//   from, times  the Nth matching call in a process is the first one that is affected, and M are
//
// All rules that match are applied, in their order. Each affected call appends "PID CALL ACTION
// PATH" to CONTROL_FILE.hits before it is affected.
//
// What is not seen: calls made within glibc itself (fflush and fclose of a FILE, getaddrinfo) and
// calls made by syscall().
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/testing/fault_rules.h"

// The function behind: dlsym's answer, looked up once.
#define REAL(name)               \
  static __typeof__(name)* real; \
  if (real == NULL) real = (__typeof__(name)*)dlsym(RTLD_NEXT, #name)

// ---- open

#define MODE_OF(flags, last)                    \
  mode_t mode = 0;                              \
  if (((flags) & (O_CREAT | O_TMPFILE)) != 0) { \
    va_list arguments;                          \
    va_start(arguments, last);                  \
    mode = va_arg(arguments, mode_t);           \
    va_end(arguments);                          \
  }

#define OPEN(name)                                                          \
  int name(const char* path, int flags, ...) {                              \
    MODE_OF(flags, flags)                                                   \
    REAL(name);                                                             \
    return FailsPath(kOpen, AT_FDCWD, path) ? -1 : real(path, flags, mode); \
  }
#define OPENAT(name)                                                              \
  int name(int folder, const char* path, int flags, ...) {                        \
    MODE_OF(flags, flags)                                                         \
    REAL(name);                                                                   \
    return FailsPath(kOpen, folder, path) ? -1 : real(folder, path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int __open_2(const char* path, int flags) { return open(path, flags); }
int __open64_2(const char* path, int flags) { return open64(path, flags); }
int __openat_2(int folder, const char* path, int flags) { return openat(folder, path, flags); }
int __openat64_2(int folder, const char* path, int flags) { return openat64(folder, path, flags); }
int creat(const char* path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char* path, mode_t mode) {
  return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

FILE* fopen(const char* path, const char* mode) {
  REAL(fopen);
  return FailsPath(kOpen, AT_FDCWD, path) ? NULL : real(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  REAL(fopen64);
  return FailsPath(kOpen, AT_FDCWD, path) ? NULL : real(path, mode);
}
int mkstemp(char* path) {
  REAL(mkstemp);
  return FailsPath(kOpen, AT_FDCWD, path) ? -1 : real(path);
}
int mkostemp(char* path, int flags) {
  REAL(mkostemp);
  return FailsPath(kOpen, AT_FDCWD, path) ? -1 : real(path, flags);
}
int mkstemp64(char* path) { return mkstemp(path); }
int mkostemp64(char* path, int flags) { return mkostemp(path, flags); }

// ---- thread

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  REAL(pthread_create);
  return Fails(kThread) ? errno : real(thread, attributes, body, argument);
}

// ---- exec

int execve(const char* path, char* const argv[], char* const environment[]) {
  REAL(execve);
  return FailsPath(kExec, AT_FDCWD, path) ? -1 : real(path, argv, environment);
}

// ---- read and write

#define TRANSFER(name, call, buffer_type)                                \
  ssize_t name(int fd, buffer_type buffer, size_t size) {                \
    REAL(name);                                                          \
    const struct Effect effect = Affect(call, fd, AT_FDCWD, NULL, size); \
    return effect.fails ? -1 : real(fd, buffer, effect.size);            \
  }
#define TRANSFER_AT(name, call, buffer_type, offset_type)                     \
  ssize_t name(int fd, buffer_type buffer, size_t size, offset_type offset) { \
    REAL(name);                                                               \
    const struct Effect effect = Affect(call, fd, AT_FDCWD, NULL, size);      \
    return effect.fails ? -1 : real(fd, buffer, effect.size, offset);         \
  }
TRANSFER(read, kRead, void*)
TRANSFER(write, kWrite, const void*)
TRANSFER_AT(pread, kRead, void*, off_t)
TRANSFER_AT(pread64, kRead, void*, off64_t)
TRANSFER_AT(pwrite, kWrite, const void*, off_t)
TRANSFER_AT(pwrite64, kWrite, const void*, off64_t)

ssize_t __read_chk(int fd, void* buffer, size_t size, size_t room) {
  if (size > room) abort();
  return read(fd, buffer, size);
}
ssize_t __pread_chk(int fd, void* buffer, size_t size, off_t offset, size_t room) {
  if (size > room) abort();
  return pread(fd, buffer, size, offset);
}
ssize_t __pread64_chk(int fd, void* buffer, size_t size, off64_t offset, size_t room) {
  if (size > room) abort();
  return pread64(fd, buffer, size, offset);
}

// One that is cut short transfers of its first part alone.
#define TRANSFER_PARTS(name, call)                                           \
  ssize_t name(int fd, const struct iovec* parts, int count) {               \
    REAL(name);                                                              \
    const struct Effect effect = Affect(call, fd, AT_FDCWD, NULL, SIZE_MAX); \
    if (effect.fails) return -1;                                             \
    if (effect.size == SIZE_MAX || count < 1) return real(fd, parts, count); \
    struct iovec first = parts[0];                                           \
    if (first.iov_len > effect.size) first.iov_len = effect.size;            \
    return real(fd, &first, 1);                                              \
  }
TRANSFER_PARTS(readv, kRead)
TRANSFER_PARTS(writev, kWrite)

// ---- Other calls on a descriptor

#define ON_FD(name, call)                     \
  int name(int fd) {                          \
    REAL(name);                               \
    return FailsFd(call, fd) ? -1 : real(fd); \
  }
ON_FD(fsync, kFsync)
ON_FD(fdatasync, kFsync)
ON_FD(close, kClose)

int ftruncate(int fd, off_t size) {
  REAL(ftruncate);
  return FailsFd(kTruncate, fd) ? -1 : real(fd, size);
}
int ftruncate64(int fd, off64_t size) {
  REAL(ftruncate64);
  return FailsFd(kTruncate, fd) ? -1 : real(fd, size);
}
int fallocate(int fd, int mode, off_t offset, off_t size) {
  REAL(fallocate);
  return FailsFd(kTruncate, fd) ? -1 : real(fd, mode, offset, size);
}
int flock(int fd, int operation) {
  REAL(flock);
  return FailsFd(kLock, fd) ? -1 : real(fd, operation);
}
int fstat(int fd, struct stat* info) {
  REAL(fstat);
  return FailsFd(kStat, fd) ? -1 : real(fd, info);
}
int fstat64(int fd, struct stat64* info) {
  REAL(fstat64);
  return FailsFd(kStat, fd) ? -1 : real(fd, info);
}

// ---- Other calls on a path

#define ON_PATH(name, call, ...) \
  REAL(name);                    \
  return FailsPath(call, AT_FDCWD, path) ? -1 : real(__VA_ARGS__)

int stat(const char* path, struct stat* info) { ON_PATH(stat, kStat, path, info); }
int stat64(const char* path, struct stat64* info) { ON_PATH(stat64, kStat, path, info); }
int lstat(const char* path, struct stat* info) { ON_PATH(lstat, kStat, path, info); }
int lstat64(const char* path, struct stat64* info) { ON_PATH(lstat64, kStat, path, info); }
int access(const char* path, int mode) { ON_PATH(access, kStat, path, mode); }
int mkdir(const char* path, mode_t mode) { ON_PATH(mkdir, kMkdir, path, mode); }
int unlink(const char* path) { ON_PATH(unlink, kUnlink, path); }
int rmdir(const char* path) { ON_PATH(rmdir, kUnlink, path); }
int remove(const char* path) { ON_PATH(remove, kUnlink, path); }
int truncate(const char* path, off_t size) { ON_PATH(truncate, kTruncate, path, size); }
char* mkdtemp(char* path) {
  REAL(mkdtemp);
  return FailsPath(kMkdir, AT_FDCWD, path) ? NULL : real(path);
}
int fstatat(int folder, const char* path, struct stat* info, int flags) {
  REAL(fstatat);
  return FailsPath(kStat, folder, path) ? -1 : real(folder, path, info, flags);
}
int fstatat64(int folder, const char* path, struct stat64* info, int flags) {
  REAL(fstatat64);
  return FailsPath(kStat, folder, path) ? -1 : real(folder, path, info, flags);
}
int statx(int folder, const char* path, int flags, unsigned mask, struct statx* info) {
  REAL(statx);
  return FailsPath(kStat, folder, path) ? -1 : real(folder, path, flags, mask, info);
}
int faccessat(int folder, const char* path, int mode, int flags) {
  REAL(faccessat);
  return FailsPath(kStat, folder, path) ? -1 : real(folder, path, mode, flags);
}
int mkdirat(int folder, const char* path, mode_t mode) {
  REAL(mkdirat);
  return FailsPath(kMkdir, folder, path) ? -1 : real(folder, path, mode);
}
int unlinkat(int folder, const char* path, int flags) {
  REAL(unlinkat);
  return FailsPath(kUnlink, folder, path) ? -1 : real(folder, path, flags);
}
// Where it comes from or where it goes.
int rename(const char* from, const char* to) {
  REAL(rename);
  return FailsPath(kRename, AT_FDCWD, from) || FailsPath(kRename, AT_FDCWD, to) ? -1
                                                                                : real(from, to);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  REAL(renameat);
  return FailsPath(kRename, from_folder, from) || FailsPath(kRename, to_folder, to)
             ? -1
             : real(from_folder, from, to_folder, to);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  REAL(renameat2);
  return FailsPath(kRename, from_folder, from) || FailsPath(kRename, to_folder, to)
             ? -1
             : real(from_folder, from, to_folder, to, flags);
}
DIR* opendir(const char* path) {
  REAL(opendir);
  return FailsPath(kOpendir, AT_FDCWD, path) ? NULL : real(path);
}
DIR* fdopendir(int fd) {
  REAL(fdopendir);
  return FailsFd(kOpendir, fd) ? NULL : real(fd);
}
int glob(const char* path, int flags, int (*on_error)(const char*, int), glob_t* found) {
  REAL(glob);
  return FailsPath(kOpendir, AT_FDCWD, path) ? GLOB_ABORTED : real(path, flags, on_error, found);
}
int glob64(const char* path, int flags, int (*on_error)(const char*, int), glob64_t* found) {
  REAL(glob64);
  return FailsPath(kOpendir, AT_FDCWD, path) ? GLOB_ABORTED : real(path, flags, on_error, found);
}

// ---- Descriptors of other kinds

int accept(int fd, struct sockaddr* address, socklen_t* size) {
  REAL(accept);
  return FailsFd(kAccept, fd) ? -1 : real(fd, address, size);
}
int accept4(int fd, struct sockaddr* address, socklen_t* size, int flags) {
  REAL(accept4);
  return FailsFd(kAccept, fd) ? -1 : real(fd, address, size, flags);
}
int socket(int domain, int type, int protocol) {
  REAL(socket);
  return Fails(kSocket) ? -1 : real(domain, type, protocol);
}
int pipe(int ends[2]) {
  REAL(pipe);
  return Fails(kPipe) ? -1 : real(ends);
}
int pipe2(int ends[2], int flags) {
  REAL(pipe2);
  return Fails(kPipe) ? -1 : real(ends, flags);
}
int epoll_create(int size) {
  REAL(epoll_create);
  return Fails(kEpollCreate) ? -1 : real(size);
}
int epoll_create1(int flags) {
  REAL(epoll_create1);
  return Fails(kEpollCreate) ? -1 : real(flags);
}
int epoll_ctl(int epoll, int operation, int fd, struct epoll_event* event) {
  REAL(epoll_ctl);
  return FailsFd(kEpollCtl, fd) ? -1 : real(epoll, operation, fd, event);
}
int eventfd(unsigned count, int flags) {
  REAL(eventfd);
  return Fails(kEventfd) ? -1 : real(count, flags);
}
int signalfd(int fd, const sigset_t* mask, int flags) {
  REAL(signalfd);
  return Fails(kSignalfd) ? -1 : real(fd, mask, flags);
}
int timerfd_create(int clock, int flags) {
  REAL(timerfd_create);
  return Fails(kTimerfd) ? -1 : real(clock, flags);
}
