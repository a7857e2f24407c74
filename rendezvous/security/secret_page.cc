// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/secret_page.h"

#include <openssl/crypto.h>
#include <sys/mman.h>

#include <new>
#include <utility>

namespace ddprun {

SecretPage::SecretPage() {
  void* const page =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  // Best effort: RLIMIT_MEMLOCK may be 0, and then the page may be swapped out.
  madvise(page, kBytes, MADV_DONTDUMP);
  mlock(page, kBytes);
  data_ = static_cast<unsigned char*>(page);
}

SecretPage::SecretPage(SecretPage&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

SecretPage& SecretPage::operator=(SecretPage&& other) noexcept {
  if (this != &other) {
    Wipe();
    data_ = std::exchange(other.data_, nullptr);
  }
  return *this;
}

void SecretPage::Wipe() {
  if (data_ == nullptr) return;
  OPENSSL_cleanse(data_, kBytes);
  munmap(data_, kBytes);
  data_ = nullptr;
}

}  // namespace ddprun
