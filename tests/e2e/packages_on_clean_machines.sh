#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Wheel and Debian packages as a new user installs them, on systems that have nothing of this: Debian 12 and Ubuntu 24.04, made
# by debootstrap in folders and entered with chroot. Each way runs `true`, a Python program with DDP, and train, with two
# ranks each. Prints each command and its seconds. Needs root, debootstrap, the network and 12 GB in FOLDER.
#
#   tests/e2e/packages_on_clean_machines.sh FOLDER RELEASE [SUITE...]     default: bookworm noble
#
# RELEASE has the wheel and the packages (deploy/release.sh wheel deb). An Ubuntu whose mirror (UBUNTU_MIRROR) is not reached is
# left out. FOLDER/pip keeps what pip has downloaded, so that torch, 2.5 GB, is fetched once. Exit code 77: this machine lacks
# what is needed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/clean_root.sh"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:?name a folder, for instance /var/tmp/clean-packages}
release=${2:?name the folder of the wheel and the packages}
shift 2
[ $# -gt 0 ] || set -- bookworm noble
debian=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
ubuntu=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}

[ "$(id -u)" = 0 ] || { echo "packages_on_clean_machines.sh needs root for chroot and mounts" >&2; exit 77; }
command -v debootstrap >/dev/null || { echo "debootstrap is not installed; install it (apt-get install debootstrap)" >&2; exit 77; }
pip_cache=$folder/pip
mkdir -p "$pip_cache"

make_system() { # SUITE
  local root=$folder/$1 options=()
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  if [ "$1" = bookworm ]; then
    debootstrap --variant=minbase "$1" "$root" "$debian" >"$root.log"
  else
    # Debian has neither Ubuntu's keys nor, in older versions, a link of this name; all of Ubuntu's are the same script.
    [ -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ] || options=(--no-check-gpg)
    debootstrap --variant=minbase --components=main,universe "${options[@]}" "$1" "$root" "$ubuntu" gutsy >"$root.log"
  fi
  copy_site "$root"
  mkdir -p "$root/root/release"
  cp "$release"/*.whl "$release"/*.deb "$here/all_reduce_and_ddp.py" "$root/root/release/"
}

step() { # COMMAND: what a user types; in the suite's system, with the virtual environment in PATH once there is one
  local begin now
  begin=$(date +%s%N)
  inside "$root" bash -c "cd /root; [ ! -e env ] || PATH=/root/env/bin:\$PATH; set -e; $1" >"$folder/step.log" 2>&1 || {
    cat "$folder/step.log" >&2
    echo "FAILED on $suite: $1" >&2
    exit 1
  }
  now=$(date +%s%N)
  printf '| %s | `%s` | %d.%01d |\n' "$suite" "$1" $(((now - begin) / 1000000000)) $(((now - begin) / 100000000 % 10))
}

two_ranks() {
  step 'ddprun --standalone --nproc-per-node 2 true'
}

with_torch() {
  step 'ddprun --standalone --nproc-per-node 2 release/all_reduce_and_ddp.py'
  step 'ddprun --standalone --nproc-per-node 2 train --dataset synthetic --model simple-cnn --max-steps 2 --no-eval'
}

for suite in "$@"; do
  root=$folder/$suite
  if [ "$suite" != bookworm ] && ! curl -fsIm 20 "$ubuntu/dists/$suite/Release" >/dev/null; then
    echo "note: $ubuntu is not reached, so $suite is left out" >&2
    continue
  fi
  make_system "$suite"
  printf '\n| system | command | s |\n|---|---|---|\n'
  step 'apt-get update -q && apt-get install -yq --no-install-recommends ca-certificates python3-venv'
  step 'python3 -m venv env && env/bin/pip install release/ddprun-*.whl'
  two_ranks
  step 'pip install "$(echo release/ddprun-*.whl)[train]" numpy'
  with_torch
  step 'pip uninstall -yq ddprun && ! command -v ddprun'
  if [ "$suite" = bookworm ]; then
    step 'apt-get install -yq --no-install-recommends ./release/ddprun_*.deb ./release/ddprun-train_*.deb'
    two_ranks
    with_torch
  else # train's package is for the system that it was made on; that of the launcher needs less
    step 'apt-get install -yq --no-install-recommends ./release/ddprun_*.deb'
    two_ranks
    step 'ddprun --standalone --nproc-per-node 2 release/all_reduce_and_ddp.py'
  fi
done
