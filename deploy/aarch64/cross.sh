# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced, after common.sh, by a script that builds or packs for aarch64 on x86-64.

# Builds the launcher's programs in $build_folder, for the processor and with the packages of unpack.sh. No train: LibTorch
# is for this machine here.
build_for_aarch64() {
  mkdir -p "$build_folder"
  DDPRUN_CACHE_DIR=$cache cmake -S "$repo" -B "$build_folder" -G Ninja --toolchain "$repo/deploy/aarch64/toolchain.cmake" \
    -DDDPRUN_WITH_TORCH=OFF -DDDPRUN_WITH_TESTS="$1" >"$build_folder/configure.log" 2>&1 || {
    cat "$build_folder/configure.log" >&2
    die "configuring failed; the lines above say why"
  }
  compile "${@:2}"
}

# From now on compiler, binutils, pkg-config and dpkg-query are those of the folder that unpack.sh made.
use_aarch64_tools() {
  export DDPRUN_SYSROOT=$cache/aarch64
  [ -e "$DDPRUN_SYSROOT/.packages" ] || die "$DDPRUN_SYSROOT has no compiler for aarch64; run deploy/setup.sh --aarch64"
  export PATH=$DDPRUN_SYSROOT/tools:$PATH
  export PKG_CONFIG_SYSROOT_DIR=$DDPRUN_SYSROOT
  export PKG_CONFIG_LIBDIR=$DDPRUN_SYSROOT/usr/lib/aarch64-linux-gnu/pkgconfig:$DDPRUN_SYSROOT/usr/share/pkgconfig
  export DPKG_ADMINDIR=$DDPRUN_SYSROOT/var/lib/dpkg
}
