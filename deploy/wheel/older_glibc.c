/* SPDX-License-Identifier: Apache-2.0 */
/* Lets a program that is built with a newer glibc run on glibc 2.31. relink.py links it into each file of the wheel, where
 * these definitions win over those of libc.so.6 and are seen by nobody else (-fvisibility=hidden).
 *
 * OLDER: glibc 2.32 to 2.34 moved functions of libpthread and libdl into libc and gave them new versions; the old ones are
 * still there, and the same. The rest is what glibc 2.31 has not. If relink.py names another symbol, add it here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* FIRST: the version of what this processor's first glibc had. A jump and not a call, so that no argument list has to be known. */
#if defined(__x86_64__)
#define FIRST "GLIBC_2.2.5"
#define NP "GLIBC_2.12"
#define JUMP(name) "endbr64\n jmp *older_" #name "@GOTPCREL(%rip)\n"
#elif defined(__aarch64__)
#define FIRST "GLIBC_2.17"
#define NP FIRST
#define JUMP(name) "hint #34\n adrp x16, :got:older_" #name "\n ldr x16, [x16, :got_lo12:older_" #name "]\n br x16\n" /* bti c */
#else
#error "the wheel is for x86-64 and aarch64: add this processor's jump and its glibc's first version here"
#endif

#define OLDER(name, version)                                    \
  __asm__(".pushsection .text.older_" #name ",\"ax\",%progbits\n" \
          ".symver older_" #name "," #name "@" version "\n"     \
          ".globl " #name "\n.hidden " #name "\n"               \
          ".type " #name ",%function\n"                         \
          #name ": " JUMP(name)                                 \
          ".size " #name ",.-" #name "\n"                       \
          ".popsection\n")

OLDER(__pthread_key_create, FIRST);
OLDER(dladdr, FIRST);
OLDER(dlclose, FIRST);
OLDER(dlerror, FIRST);
OLDER(dlopen, FIRST);
OLDER(dlsym, FIRST);
OLDER(hypot, FIRST);
OLDER(pthread_attr_setstacksize, FIRST);
OLDER(pthread_cond_clockwait, "GLIBC_2.30");
OLDER(pthread_create, FIRST);
OLDER(pthread_detach, FIRST);
OLDER(pthread_getspecific, FIRST);
OLDER(pthread_join, FIRST);
OLDER(pthread_key_create, FIRST);
OLDER(pthread_key_delete, FIRST);
OLDER(pthread_mutex_trylock, FIRST);
OLDER(pthread_mutexattr_destroy, FIRST);
OLDER(pthread_mutexattr_init, FIRST);
OLDER(pthread_mutexattr_settype, FIRST);
OLDER(pthread_once, FIRST);
OLDER(pthread_rwlock_destroy, FIRST);
OLDER(pthread_rwlock_init, FIRST);
OLDER(pthread_rwlock_rdlock, FIRST);
OLDER(pthread_rwlock_tryrdlock, FIRST);
OLDER(pthread_rwlock_trywrlock, FIRST);
OLDER(pthread_rwlock_unlock, FIRST);
OLDER(pthread_rwlock_wrlock, FIRST);
OLDER(pthread_setname_np, NP);
OLDER(pthread_setspecific, FIRST);
OLDER(pthread_sigmask, FIRST);

/* The kernel's struct stat is glibc's on these processors. */
int stat(const char* path, struct stat* to) { return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, 0); }
int lstat(const char* path, struct stat* to) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}
int fstat(int fd, struct stat* to) { return (int)syscall(SYS_fstat, fd, to); }
int fstatat(int fd, const char* path, struct stat* to, int flags) {
  return (int)syscall(SYS_newfstatat, fd, path, to, flags);
}
int stat64(const char* path, struct stat64* to) { return stat(path, (struct stat*)to); }
int lstat64(const char* path, struct stat64* to) { return lstat(path, (struct stat*)to); }
int fstat64(int fd, struct stat64* to) { return fstat(fd, (struct stat*)to); }
int fstatat64(int fd, const char* path, struct stat64* to, int flags) {
  return fstatat(fd, path, (struct stat*)to, flags);
}

/* libstdc++ then uses atomic operations always, as it did before glibc 2.32. */
char __libc_single_threaded = 0;

void arc4random_buf(void* to, size_t size) {
  char* at = to;
  while (size > 0) {
    const ssize_t done = getrandom(at, size, 0);
    if (done < 0 && errno != EINTR) abort();
    if (done > 0) at += done, size -= (size_t)done;
  }
}
uint32_t arc4random(void) {
  uint32_t number = 0;
  arc4random_buf(&number, sizeof number);
  return number;
}

const char* sigabbrev_np(int number) {
  static const char* const names[] = {
      [SIGHUP] = "HUP",   [SIGINT] = "INT",       [SIGQUIT] = "QUIT", [SIGILL] = "ILL",   [SIGTRAP] = "TRAP",
      [SIGABRT] = "ABRT", [SIGBUS] = "BUS",       [SIGFPE] = "FPE",   [SIGKILL] = "KILL", [SIGUSR1] = "USR1",
      [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2",     [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM", [SIGTERM] = "TERM",
      [SIGCHLD] = "CHLD", [SIGSTKFLT] = "STKFLT", [SIGCONT] = "CONT", [SIGSTOP] = "STOP", [SIGTSTP] = "TSTP",
      [SIGTTIN] = "TTIN", [SIGTTOU] = "TTOU",     [SIGURG] = "URG",   [SIGXCPU] = "XCPU", [SIGXFSZ] = "XFSZ",
      [SIGPROF] = "PROF", [SIGWINCH] = "WINCH",   [SIGPOLL] = "POLL", [SIGPWR] = "PWR",   [SIGSYS] = "SYS",
      [SIGVTALRM] = "VTALRM",
  };
  return number > 0 && number < (int)(sizeof names / sizeof *names) ? names[number] : NULL;
}

/* What the unwinder of g++ 12 asks for each frame; it asked dl_iterate_phdr() itself before. */
struct Search {
  uintptr_t address;
  struct dl_find_object* result;
};

static int FindIn(struct dl_phdr_info* info, size_t size, void* argument) {
  (void)size;
  struct Search* search = argument;
  const ElfW(Phdr)* frames = NULL;
  int found = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_GNU_EH_FRAME) frames = header;
    if (header->p_type != PT_LOAD || search->address < begin || search->address >= begin + header->p_memsz) continue;
    found = 1;
    search->result->dlfo_map_start = (void*)begin;
    search->result->dlfo_map_end = (void*)(begin + header->p_memsz);
  }
  if (!found || frames == NULL) return found ? -1 : 0;
  search->result->dlfo_flags = 0;
  search->result->dlfo_link_map = NULL;
  search->result->dlfo_eh_frame = (void*)(info->dlpi_addr + frames->p_vaddr);
  return 1;
}

int _dl_find_object(void* address, struct dl_find_object* result) {
  struct Search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(FindIn, &search) == 1 ? 0 : -1;
}

#ifdef PROGRAM
/* From glibc 2.34 on the C library calls a program's constructors itself; before, the program's start-up file passed it
 * this function. A newer glibc calls it as well when it is asked for by the old version. */
typedef void Constructor(int, char**, char**);
extern Constructor* __init_array_start[] __attribute__((visibility("hidden")));
extern Constructor* __init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);

static void Construct(int argc, char** argv, char** environment) {
  _init();
  for (Constructor** at = __init_array_start; at != __init_array_end; ++at) (*at)(argc, argv, environment);
}

typedef int Main(int, char**, char**);
__asm__(".symver older_start,__libc_start_main@" FIRST);
extern int older_start(Main*, int, char**, Constructor*, void (*)(void), void (*)(void), void*);

int __libc_start_main(Main* program, int argc, char** argv, Constructor* construct, void (*destroy)(void),
                      void (*end_of_loader)(void), void* stack) {
  (void)construct;
  return older_start(program, argc, argv, Construct, destroy, end_of_loader, stack);
}
#endif
