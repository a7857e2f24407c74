#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks what building for aarch64 on x86-64 Debian 12 needs into one folder: the cross compiler, qemu-user, and the arm64
# packages whose headers and libraries the programs are built with. Nothing is installed and no root is needed: apt resolves
# the arm64 packages against an empty list of installed ones, in a state of its own.
#
#   deploy/aarch64/unpack.sh FOLDER        deploy/setup.sh --aarch64 calls it with $DDPRUN_CACHE_DIR/aarch64
#
# FOLDER/var/lib/dpkg lists the packages and their files by their paths here, so that `dpkg-query -S` answers for them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

root=$(realpath -m "${1:?deploy/aarch64/unpack.sh needs the folder to unpack into}")

# The libraries of [build], and GoogleTest.
arm64_packages() {
  { packages_of build && packages_of test; } | grep -E '^(lib.*|nlohmann-.*|prometheus-cpp|zlib1g)-dev$'
}

has_all() { cmp -s <(arm64_packages && packages_of aarch64) "$root/.packages"; }

# Downloads into the current folder what all arm64 packages need, and what [aarch64] lists, of this machine's kind.
download() {
  local option options=() libraries tools
  mapfile -t libraries < <(arm64_packages)
  mapfile -t tools < <(packages_of aarch64)
  mkdir -p state/lists/partial state/archives/partial
  : >state/status
  for option in APT::Architecture=arm64 APT::Architectures=arm64 Acquire::Languages=none APT::Sandbox::User=root \
    "Dir::State::Lists=$PWD/state/lists" "Dir::State::status=$PWD/state/status" "Dir::Cache=$PWD/state" \
    "Dir::Cache::archives=$PWD/state/archives" Debug::NoLocking=1; do
    options+=(-o "$option")
  done
  apt-get "${options[@]}" -q update >log 2>&1 &&
    apt-get "${options[@]}" -qy --no-install-recommends --download-only install "${libraries[@]}" >>log 2>&1 &&
    apt-get -q -o APT::Sandbox::User=root download "${tools[@]}" >>log 2>&1 || {
    tail -n 5 log >&2
    die "the arm64 packages could not be downloaded (the lines above say why); check the network and the package sources"
  }
  mv state/archives/*.deb .
}

# The compiler and binutils by the names that deploy/wheel/*.py call, in $1/tools; cross.sh puts that first in PATH.
name_tools() {
  local name
  mkdir "$1/tools"
  for name in cc:gcc-12 gcc:gcc-12 c++:g++-12 g++:g++-12; do
    # shellcheck disable=SC2016  # for that script's shell
    printf '#!/bin/sh\nexec "%s/usr/bin/aarch64-linux-gnu-%s" "--sysroot=%s" "$@"\n' "$root" "${name#*:}" "$root" >"$1/tools/${name%:*}"
    chmod +x "$1/tools/${name%:*}"
  done
  for name in ar objdump strip; do ln -s "../usr/bin/aarch64-linux-gnu-$name" "$1/tools/$name"; done
}

# Unpacks the packages of the current folder into $1, and writes dpkg's lists as for $root.
unpack() {
  local package name info=$1/var/lib/dpkg/info
  mkdir -p "$1/usr/lib" "$1/usr/bin" "$1/usr/sbin" "$info"
  ln -s usr/lib usr/bin usr/sbin "$1"
  echo 1 >"$info/format" # lists are named PACKAGE:ARCHITECTURE
  for package in *.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$1" --keep-directory-symlink --no-same-owner
    name=$(dpkg-deb -f "$package" Package)
    if [ "$(dpkg-deb -f "$package" Multi-Arch)" = same ]; then name+=:$(dpkg-deb -f "$package" Architecture); fi
    # A library in /lib is in /usr/lib here.
    dpkg-deb --fsys-tarfile "$package" | tar -t | sed -e "s|^\.|$root|" -e "s|^$root/lib/|$root/usr/lib/|" -e 's|/$||' >"$info/$name.list"
    { dpkg-deb -f "$package" && printf 'Status: install ok installed\n\n'; } >>"$1/var/lib/dpkg/status"
  done
  # Links to what is in this folder, from wherever the folder is.
  find "$1" -lname '/*' -printf '%p %l\n' | while read -r package name; do
    ln -sfnr "$1$name" "$package"
  done
  ln -s /usr/bin/ld.lld "$1/usr/aarch64-linux-gnu/bin" # it links for every processor; gcc searches this folder
  # CMake's package of gRPC wants its generators of code here; those that run are this machine's, as protoc is.
  ln -s /usr/bin/grpc_*_plugin "$1/usr/bin"
  # The assembler and the like have libraries of their own, which the loader looks for in /usr/lib.
  for package in "$1"/usr/bin/aarch64-linux-gnu-*; do
    [ -L "$package" ] || patchelf --set-rpath "\$ORIGIN/../lib/x86_64-linux-gnu" "$package"
  done
}

has_all && exit
command -v dpkg-deb >/dev/null || die "this is not Debian; the wheel for aarch64 is made on Debian 12"
[ "$(uname -m)" = x86_64 ] || die "this machine is $(uname -m); cross-building is done on x86-64"
say "unpacking the packages for aarch64 into $root (190 MB to download, once)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
download
rm -rf "$root" "$root.part"
unpack "$root.part"
name_tools "$root.part"
{ arm64_packages && packages_of aarch64; } >"$root.part/.packages"
mv "$root.part" "$root"
