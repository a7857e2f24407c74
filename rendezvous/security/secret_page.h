// SPDX-License-Identifier: Apache-2.0
// Memory for a secret: not in core files, not swapped out where that is allowed, and wiped when it
// is no longer needed.
#pragma once

#include <cstddef>

namespace ddprun {

class SecretPage {
 public:
  static constexpr std::size_t kBytes = 4096;

  // Zeros. Throws std::bad_alloc where there is no memory, as new does.
  SecretPage();
  SecretPage(SecretPage&& other) noexcept;
  SecretPage& operator=(SecretPage&& other) noexcept;
  ~SecretPage() { Wipe(); }

  // nullptr after Wipe() and after a move.
  unsigned char* data() { return data_; }
  const unsigned char* data() const { return data_; }

  void Wipe();

 private:
  unsigned char* data_ = nullptr;
};

}  // namespace ddprun
