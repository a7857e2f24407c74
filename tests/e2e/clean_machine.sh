#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Both commands of the README on a machine that has nothing of this: a Debian 12 made by debootstrap in a folder, entered
# with chroot, with a clone of the committed tree. Prints how long each took. Needs root, debootstrap and git, about
# 12 GB at FOLDER and the network; takes about half an hour, so it is run by hand and not by ctest.
#
#   tests/e2e/clean_machine.sh FOLDER [quickstart|test|both]      default: both
#
# FOLDER is kept: remove it to start from nothing, or run again to see the second run's times. The machine's own
# certificates and proxy variables are passed on, since a clean machine at the same site has them too.
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:?name a folder, for instance /var/tmp/clean-debian}
what=${2:-both}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

[ "$(id -u)" = 0 ] || { echo "clean_machine.sh needs root for chroot and mounts" >&2; exit 1; }
if [ ! -e "$folder/.made" ]; then
  mkdir -p "$folder"
  debootstrap --variant=minbase bookworm "$folder" "$mirror" >"$folder.log"
  cp /etc/resolv.conf "$folder/etc/resolv.conf"
  mkdir -p "$folder/usr/local/share/ca-certificates"
  cp /usr/local/share/ca-certificates/*.crt "$folder/usr/local/share/ca-certificates/" 2>/dev/null || true
  touch "$folder/.made"
fi
rm -rf "$folder/root/clone"
git clone -q "$repo" "$folder/root/clone"

inside() { # COMMAND...: in a pid and mount namespace of its own, so that nothing outlives it
  unshare --mount --pid --fork --kill-child bash -c '
    set -e
    root=$1; shift
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/dev" -o mode=755
    for node in null zero full random urandom tty; do touch "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"; done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666
    ln -s pts/ptmx "$root/dev/ptmx"; ln -s /proc/self/fd "$root/dev/fd"
    mount -t tmpfs tmpfs "$root/dev/shm"
    mount -t sysfs sysfs "$root/sys"
    exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
      ${PIP_CERT:+PIP_CERT=$PIP_CERT} ${http_proxy:+http_proxy=$http_proxy} ${https_proxy:+https_proxy=$https_proxy} "$@"
  ' inside "$folder" "$@"
}

timed() { # NAME COMMAND...
  local name=$1 begin=$SECONDS
  shift
  "$@" || { echo "$name FAILED after $((SECONDS - begin)) s" >&2; exit 1; }
  echo "$name took $((SECONDS - begin)) s"
}

inside sh -c '! command -v gcc && ! command -v python3 && test ! -e /usr/local/cuda' ||
  echo "note: $folder is not new any more"
case $what in quickstart | both) timed quickstart inside /root/clone/deploy/quickstart.sh ;; esac
case $what in test | both) timed test inside /root/clone/deploy/test.sh ;; esac
