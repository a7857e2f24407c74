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
. "$(dirname "${BASH_SOURCE[0]}")/clean_root.sh"

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:?name a folder, for instance /var/tmp/clean-debian}
what=${2:-both}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

[ "$(id -u)" = 0 ] || { echo "clean_machine.sh needs root for chroot and mounts" >&2; exit 1; }
if [ ! -e "$folder/.made" ]; then
  mkdir -p "$folder"
  debootstrap --variant=minbase bookworm "$folder" "$mirror" >"$folder.log"
  copy_site "$folder"
  touch "$folder/.made"
fi
rm -rf "$folder/root/clone"
git clone -q "$repo" "$folder/root/clone"

timed() { # NAME COMMAND...
  local name=$1 begin=$SECONDS
  shift
  "$@" || { echo "$name FAILED after $((SECONDS - begin)) s" >&2; exit 1; }
  echo "$name took $((SECONDS - begin)) s"
}

inside "$folder" sh -c '! command -v gcc && ! command -v python3 && test ! -e /usr/local/cuda' ||
  echo "note: $folder is not new any more"
case $what in quickstart | both) timed quickstart inside "$folder" /root/clone/deploy/quickstart.sh ;; esac
case $what in test | both) timed test inside "$folder" /root/clone/deploy/test.sh ;; esac
