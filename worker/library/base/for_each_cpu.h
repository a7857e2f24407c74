// SPDX-License-Identifier: Apache-2.0
// Attribute for a function of plain loops: compiles one copy for each level of x86-64; the best one
// is chosen when the program is loaded, which is before a sanitizer is ready for calls.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define DDPRUN_FOR_EACH_CPU \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DDPRUN_FOR_EACH_CPU
#endif
