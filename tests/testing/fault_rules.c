// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "tests/testing/fault_rules.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char* const kCallNames[kCalls] = {
    "open",      "read",    "write",    "fsync",   "truncate", "rename", "unlink", "mkdir",
    "stat",      "opendir", "lock",     "close",   "accept",   "socket", "pipe",   "epoll_create",
    "epoll_ctl", "eventfd", "signalfd", "timerfd", "exec",     "thread"};

enum Action { kHang, kDelay, kShort, kFail };

struct Rule {
  uint32_t calls;  // a bit each
  enum Action action;
  long number;  // milliseconds, bytes, or the errno
  char action_text[24];
  char path[512];
  char program[64];
  long from;
  long times;  // 0: all
  long seen;
};

enum { kRulesMax = 32, kFileBytesMax = 16384 };

static char control_path[PATH_MAX];
static char hits_path[PATH_MAX + 8];
static struct Rule rules[kRulesMax];
static int rule_count;
static atomic_uint active_calls;
static atomic_int lock_owner;  // a process id; 0: free
// Which version of the control file the rules are of.
static struct {
  uint64_t inode, size;
  int64_t seconds, nanoseconds;
} version;

// A lock that is held in the parent at a fork is not held in the child.
static void Lock(void) {
  const int self = (int)syscall(SYS_getpid);
  while (true) {
    int owner = 0;
    if (atomic_compare_exchange_weak(&lock_owner, &owner, self)) return;
    if (owner != 0 && owner != self && atomic_compare_exchange_strong(&lock_owner, &owner, self))
      return;
  }
}
static void Unlock(void) { atomic_store(&lock_owner, 0); }

static void SleepMs(long ms) {
  struct timespec left = {ms / 1000, ms % 1000 * 1000000};
  while (syscall(SYS_nanosleep, &left, &left) != 0 && errno == EINTR) {
  }
}

// As the kernel writes it: without "//" and "/./".
static void Collapse(char* path) {
  char* to = path;
  for (const char* from = path; *from != '\0'; ++from) {
    const bool after_slash = to > path && to[-1] == '/';
    if (after_slash && from[0] == '/') continue;
    if (after_slash && from[0] == '.' && from[1] == '/') {
      ++from;
      continue;
    }
    *to++ = *from;
  }
  *to = '\0';
}

// ---- Rules

static int ErrnoOf(const char* name) {
  for (int error = 1; error < 200; ++error) {
    const char* known = strerrorname_np(error);
    if (known != NULL && strcmp(known, name) == 0) return error;
  }
  return 0;
}

static void Stop(const char* line) {
  char text[600];
  const int size = snprintf(text, sizeof text, "fault_shim: cannot read the rule `%s`\n", line);
  (void)!syscall(SYS_write, 2, text, size);
  abort();  // a rule that does nothing would be a test that cannot fail
}

static bool ParseAction(const char* word, struct Rule* rule) {
  snprintf(rule->action_text, sizeof rule->action_text, "%s", word);
  if (strcmp(word, "hang") == 0) {
    rule->action = kHang;
  } else if (strncmp(word, "delay=", 6) == 0) {
    rule->action = kDelay;
    rule->number = atol(word + 6);
  } else if (strncmp(word, "short=", 6) == 0) {
    rule->action = kShort;
    rule->number = atol(word + 6);
    return rule->number > 0;
  } else {
    rule->action = kFail;
    rule->number = ErrnoOf(word);
    return rule->number != 0;
  }
  return true;
}

static bool ParseCalls(char* word, struct Rule* rule) {
  char* save = NULL;
  for (char* name = strtok_r(word, ",", &save); name != NULL; name = strtok_r(NULL, ",", &save)) {
    int call = 0;
    while (call < kCalls && strcmp(name, kCallNames[call]) != 0) ++call;
    if (call == kCalls) return false;
    rule->calls |= 1u << call;
  }
  return rule->calls != 0;
}

static void ParseRule(char* line) {
  char whole[512];
  snprintf(whole, sizeof whole, "%s", line);
  struct Rule rule = {.from = 1};
  char* save = NULL;
  char* word = strtok_r(line, " ", &save);
  if (word == NULL || word[0] == '#') return;
  if (!ParseCalls(word, &rule)) Stop(whole);
  word = strtok_r(NULL, " ", &save);
  if (word == NULL || !ParseAction(word, &rule)) Stop(whole);
  while ((word = strtok_r(NULL, " ", &save)) != NULL) {
    if (strncmp(word, "path=", 5) == 0) {
      snprintf(rule.path, sizeof rule.path, "%s", word + 5);
      Collapse(rule.path);
    } else if (strncmp(word, "program=", 8) == 0) {
      snprintf(rule.program, sizeof rule.program, "%s", word + 8);
    } else if (strncmp(word, "from=", 5) == 0) {
      rule.from = atol(word + 5);
    } else if (strncmp(word, "times=", 6) == 0) {
      rule.times = atol(word + 6);
    } else {
      Stop(whole);
    }
  }
  if (rule.program[0] != '\0' && strcmp(rule.program, program_invocation_short_name) != 0) return;
  if (rule_count == kRulesMax) Stop(whole);
  rules[rule_count++] = rule;
}

// Under the lock.
static void ReadRules(void) {
  static char text[kFileBytesMax];
  rule_count = 0;
  unsigned calls = 0;
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, control_path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    long size = 0;
    long got = 0;
    while ((got = syscall(SYS_read, fd, text + size, sizeof text - 1 - (size_t)size)) > 0)
      size += got;
    syscall(SYS_close, fd);
    text[size] = '\0';
    char* save = NULL;
    for (char* line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
      ParseRule(line);
  }
  for (int i = 0; i < rule_count; ++i) calls |= rules[i].calls;
  atomic_store(&active_calls, calls);
}

static void Refresh(void) {
  struct statx now;
  if (syscall(SYS_statx, AT_FDCWD, control_path, 0, STATX_BASIC_STATS, &now) != 0)
    memset(&now, 0, sizeof now);
  Lock();
  if (now.stx_ino != version.inode || now.stx_size != version.size ||
      now.stx_mtime.tv_sec != version.seconds || now.stx_mtime.tv_nsec != version.nanoseconds) {
    version.inode = now.stx_ino;
    version.size = now.stx_size;
    version.seconds = now.stx_mtime.tv_sec;
    version.nanoseconds = now.stx_mtime.tv_nsec;
    ReadRules();
  }
  Unlock();
}

__attribute__((constructor)) static void Begin(void) {
  const char* chosen = getenv("DDPRUN_FAULTS");
  if (chosen == NULL || chosen[0] != '/') return;
  snprintf(control_path, sizeof control_path, "%s", chosen);
  snprintf(hits_path, sizeof hits_path, "%s.hits", chosen);
  Refresh();
}

// ---- Paths

static void PathOfFd(int fd, char* to, size_t size) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const long count = syscall(SYS_readlinkat, AT_FDCWD, link, to, size - 1);
  to[count < 0 ? 0 : count] = '\0';
}

static void Absolute(int folder, const char* path, char* to, size_t size) {
  if (path == NULL || path[0] == '/') {
    snprintf(to, size, "%s", path == NULL ? "" : path);
    return;
  }
  if (folder == AT_FDCWD) {
    if (syscall(SYS_getcwd, to, size) < 0) to[0] = '\0';
  } else {
    PathOfFd(folder, to, size);
  }
  const size_t length = strlen(to);
  snprintf(to + length, size - length, "%s%s", path[0] == '\0' ? "" : "/", path);
}

// ---- Affecting a call

// A copy of the first rule, of those from `first` on, that affects the call; -1, or its number.
// `count`: this call counts for from= and times=.
static int Match(enum Call call, const char* path, bool count, int first, struct Rule* to) {
  int found = -1;
  Lock();
  for (int i = first; i < rule_count && found < 0; ++i) {
    struct Rule* rule = &rules[i];
    if ((rule->calls & (1u << call)) == 0) continue;
    if (strncmp(path, rule->path, strlen(rule->path)) != 0) continue;
    if (count) {
      ++rule->seen;
      if (rule->seen < rule->from) continue;
      if (rule->times > 0 && rule->seen >= rule->from + rule->times) continue;
    }
    *to = *rule;
    found = i;
  }
  Unlock();
  return found;
}

static bool Hangs(enum Call call, const char* path) {
  struct Rule rule;
  for (int i = 0; (i = Match(call, path, false, i, &rule)) >= 0; ++i) {
    if (rule.action == kHang) return true;
  }
  return false;
}

static void RecordHit(enum Call call, const struct Rule* rule, const char* path) {
  char line[PATH_MAX + 128];
  const int size = snprintf(line, sizeof line, "%ld %s %s %s\n", syscall(SYS_getpid),
                            kCallNames[call], rule->action_text, path);
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, hits_path,
                              O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return;  // the process has no descriptor left, or the test is over
  (void)!syscall(SYS_write, fd, line, size);
  syscall(SYS_close, fd);
}

// `fd` < 0: `path`, relative to `folder`.
struct Effect Affect(enum Call call, int fd, int folder, const char* path, size_t size) {
  struct Effect effect = {false, size};
  if (control_path[0] == '\0') return effect;
  const int saved = errno;
  Refresh();
  if ((atomic_load(&active_calls) & (1u << call)) != 0) {
    char absolute[PATH_MAX] = "";
    if (fd >= 0) {
      PathOfFd(fd, absolute, sizeof absolute);
    } else if (path != NULL) {
      Absolute(folder, path, absolute, sizeof absolute);
      Collapse(absolute);
    }
    struct Rule rule;
    for (int i = 0; (i = Match(call, absolute, true, i, &rule)) >= 0; ++i) {
      RecordHit(call, &rule, absolute);
      switch (rule.action) {
        case kHang:
          do {
            SleepMs(5);
            Refresh();
          } while (Hangs(call, absolute));
          break;
        case kDelay:
          SleepMs(rule.number);
          break;
        case kShort:
          if (effect.size > (size_t)rule.number) effect.size = (size_t)rule.number;
          break;
        case kFail:
          errno = (int)rule.number;
          effect.fails = true;
          return effect;
      }
    }
  }
  errno = saved;
  return effect;
}

bool FailsPath(enum Call call, int folder, const char* path) {
  return Affect(call, -1, folder, path == NULL ? "" : path, 0).fails;
}
bool FailsFd(enum Call call, int fd) { return Affect(call, fd, AT_FDCWD, NULL, 0).fails; }
bool Fails(enum Call call) { return Affect(call, -1, AT_FDCWD, NULL, 0).fails; }
