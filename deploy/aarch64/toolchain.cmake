# SPDX-License-Identifier: Apache-2.0
# Builds for aarch64 on x86-64, with what deploy/aarch64/unpack.sh has unpacked (deploy/setup.sh --aarch64):
#   cmake -S . -B build/aarch64 -G Ninja --toolchain deploy/aarch64/toolchain.cmake -DDDPRUN_WITH_TORCH=OFF
# Programs that the build runs, and the tests, run under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

# Also for the small projects with which CMake tries the compiler.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DDPRUN_AARCH64_ROOT)
if(NOT DDPRUN_AARCH64_ROOT)
  if(DEFINED ENV{DDPRUN_CACHE_DIR})
    set(cache "$ENV{DDPRUN_CACHE_DIR}")
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(cache "$ENV{XDG_CACHE_HOME}/ddprun")
  else()
    set(cache "$ENV{HOME}/.cache/ddprun")
  endif()
  set(DDPRUN_AARCH64_ROOT "${cache}/aarch64")
endif()
set(DDPRUN_AARCH64_ROOT "${DDPRUN_AARCH64_ROOT}" CACHE PATH "The compiler and the arm64 packages: deploy/aarch64/unpack.sh")
if(NOT EXISTS "${DDPRUN_AARCH64_ROOT}/usr/bin/aarch64-linux-gnu-g++-12")
  message(FATAL_ERROR "${DDPRUN_AARCH64_ROOT} has no compiler for aarch64; run deploy/setup.sh --aarch64")
endif()

set(CMAKE_SYSROOT "${DDPRUN_AARCH64_ROOT}")
set(CMAKE_C_COMPILER "${DDPRUN_AARCH64_ROOT}/usr/bin/aarch64-linux-gnu-gcc-12")
set(CMAKE_CXX_COMPILER "${DDPRUN_AARCH64_ROOT}/usr/bin/aarch64-linux-gnu-g++-12")
set(CMAKE_CROSSCOMPILING_EMULATOR "${DDPRUN_AARCH64_ROOT}/usr/bin/qemu-aarch64-static;-L;${DDPRUN_AARCH64_ROOT}")
# protoc, its plugin, Python and ccache are this machine's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${DDPRUN_AARCH64_ROOT}")
set(ENV{PKG_CONFIG_LIBDIR} "${DDPRUN_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${DDPRUN_AARCH64_ROOT}/usr/share/pkgconfig")
