// SPDX-License-Identifier: Apache-2.0
// Tells ThreadSanitizer what the locks of Abseil order, and that a batch of gRPC's begins before
// its callback. Debian's packages are not built with it: every value under such a lock, ours and
// gRPC's, would be reported as a race. These functions stand before the packages' own in the order
// in which the loader looks names up, which needs shared packages.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <link.h>
#include <sanitizer/tsan_interface.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

// Names of Abseil as Debian 12 builds it.
#define ABSEIL(name) "_ZN4absl7debian3" name
#define ABSEIL_CONST(name) "_ZNK4absl7debian3" name

namespace {

constexpr unsigned kPollMicroseconds = 200;

template <typename Function>
Function* Next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) abort();
  return reinterpret_cast<Function*>(found);
}

bool IsCode(std::uintptr_t address) {
  return dl_iterate_phdr(
             [](dl_phdr_info* object, std::size_t, void* searched) {
               const auto at = *static_cast<std::uintptr_t*>(searched) - object->dlpi_addr;
               for (int i = 0; i < object->dlpi_phnum; ++i) {
                 const auto& part = object->dlpi_phdr[i];
                 if ((part.p_flags & PF_X) != 0 && at - part.p_vaddr < part.p_memsz) return 1;
               }
               return 0;
             },
             &address) != 0;
}

// gRPC has one function for the tags of each kind of callback.
using Callback = void (*)(grpc_completion_queue_functor*, int);
constexpr std::size_t kCallbackKindsMax = 4;
std::array<std::atomic<Callback>, kCallbackKindsMax> callbacks;

template <std::size_t kind>
void RunAfterItsBatch(grpc_completion_queue_functor* tag, int succeeded) {
  __tsan_acquire(tag);
  callbacks[kind].load()(tag, succeeded);
}

template <std::size_t... kinds>
Callback AfterItsBatch(Callback callback, std::index_sequence<kinds...>) {
  constexpr std::array<Callback, kCallbackKindsMax> wrapped = {RunAfterItsBatch<kinds>...};
  for (std::size_t i = 0; i < kCallbackKindsMax; ++i) {
    Callback known = nullptr;
    if (callback == wrapped[i]) return callback;  // of a tag that is used again
    if (callbacks[i].compare_exchange_strong(known, callback) || known == callback)
      return wrapped[i];
  }
  abort();
}

}  // namespace

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, std::size_t count,
                                      void* tag, void* reserved) {
  static auto* const start = Next<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  // Tags of calls without callbacks begin with a pointer to a table of virtual functions.
  auto* const functor = static_cast<grpc_completion_queue_functor*>(tag);
  if (IsCode(*static_cast<std::uintptr_t*>(tag))) {
    functor->functor_run =
        AfterItsBatch(functor->functor_run, std::make_index_sequence<kCallbackKindsMax>());
    __tsan_release(functor);
  }
  return start(call, ops, count, tag, reserved);
}

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const lock = Next<void(Mutex*)>(ABSEIL("5Mutex4LockEv"));
  lock(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  static auto* const try_lock = Next<bool(Mutex*)>(ABSEIL("5Mutex7TryLockEv"));
  const bool locked = try_lock(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  static auto* const unlock = Next<void(Mutex*)>(ABSEIL("5Mutex6UnlockEv"));
  __tsan_release(this);
  unlock(this);
}

void Mutex::ReaderLock() {
  static auto* const lock = Next<void(Mutex*)>(ABSEIL("5Mutex10ReaderLockEv"));
  lock(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static auto* const unlock = Next<void(Mutex*)>(ABSEIL("5Mutex12ReaderUnlockEv"));
  __tsan_release(this);
  unlock(this);
}

// Abseil evaluates the conditions of all who wait on the thread that unlocks; here each evaluates
// its own.
bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  const Time deadline = Now() + timeout;
  while (!condition.Eval()) {
    if (Now() >= deadline) return false;
    Unlock();
    usleep(kPollMicroseconds);
    Lock();
  }
  return true;
}

void Mutex::Await(const Condition& condition) { AwaitWithTimeout(condition, InfiniteDuration()); }

void CondVar::Wait(Mutex* mutex) {
  static auto* const wait = Next<void(CondVar*, Mutex*)>(ABSEIL("7CondVar4WaitEPNS0_5MutexE"));
  __tsan_release(mutex);
  wait(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static auto* const wait = Next<bool(CondVar*, Mutex*, Duration)>(
      ABSEIL("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE"));
  __tsan_release(mutex);
  const bool timed_out = wait(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static auto* const wait = Next<bool(CondVar*, Mutex*, Time)>(
      ABSEIL("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE"));
  __tsan_release(mutex);
  const bool timed_out = wait(this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

void Notification::Notify() {
  static auto* const notify = Next<void(Notification*)>(ABSEIL("12Notification6NotifyEv"));
  __tsan_release(this);
  notify(this);
}

void Notification::WaitForNotification() const {
  static auto* const wait =
      Next<void(const Notification*)>(ABSEIL_CONST("12Notification19WaitForNotificationEv"));
  wait(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static auto* const wait = Next<bool(const Notification*, Duration)>(
      ABSEIL_CONST("12Notification30WaitForNotificationWithTimeoutENS0_8DurationE"));
  const bool notified = wait(this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl
