// SPDX-License-Identifier: Apache-2.0
// A slower processor, for tests: a library for LD_PRELOAD. From one SIGRTMIN+3 to the next, the
// first thread of the process spends half of its time in a signal handler. Unlike a process that is
// stopped and continued, or that shares its CPU, it is not interrupted by any other process.
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id  // glibc before 2.36 does not name it
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { kSlice = 1000000 };  // nanoseconds, half of a period

static timer_t timer;
static int is_slow;

static long long Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void Spend(int signal) {
  (void)signal;
  const long long end = Now() + kSlice;
  while (Now() < end) {
  }
}

static void Toggle(int signal) {
  (void)signal;
  is_slow = !is_slow;
  const struct timespec slices = {.tv_sec = 0, .tv_nsec = is_slow ? 2 * kSlice : 0};
  const struct itimerspec setting = {.it_interval = slices, .it_value = slices};
  timer_settime(timer, 0, &setting, NULL);
}

__attribute__((constructor)) static void Begin(void) {
  struct sigevent event;
  memset(&event, 0, sizeof event);
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGRTMIN + 4;
  event.sigev_notify_thread_id = getpid();
  timer_create(CLOCK_MONOTONIC, &event, &timer);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = SA_RESTART;
  action.sa_handler = Spend;
  sigaction(SIGRTMIN + 4, &action, NULL);
  action.sa_handler = Toggle;
  sigaction(SIGRTMIN + 3, &action, NULL);
}
