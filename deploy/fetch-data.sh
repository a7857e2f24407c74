#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gets CIFAR-10 (binary version) and unpacks it where `train --dataset cifar10 --data-dir DIR` finds it.
#
#   deploy/fetch-data.sh [DIR]     default: ~/.cache/ddprun/data
#
# Safe to repeat. Without a network: put the archive into DIR by hand and run this again.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

archive=cifar-10-binary.tar.gz
url=${DDPRUN_CIFAR10_URL:-https://www.cs.toronto.edu/~kriz/$archive}
bytes=170052171
sha256=c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd
case "${1:-}" in
  -h | --help)
    sed -n '3,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*) die "unknown argument '$1'; deploy/fetch-data.sh takes one folder" ;;
esac
folder=${1:-$cache/data}
mkdir -p "$folder" || die "cannot make the folder $folder; name another one"

is_good() { [ "$(stat -c %s "$1" 2>/dev/null)" = $bytes ] && echo "$sha256  $1" | sha256sum --check --status; }

download() { # TO
  local by_hand="get $url on another machine, put it at $folder/$archive, and run this again"
  command -v curl >/dev/null || die "curl is not installed; install it (apt-get install curl), or $by_hand"
  curl --fail --location --silent --show-error --connect-timeout 20 --max-time 3600 --output "$1" "$url" ||
    die "$url could not be fetched; $by_hand"
}

if [ -e "$folder/cifar-10-batches-bin/.complete" ]; then
  say "CIFAR-10 is in $folder already"
  exit 0
fi
if [ -e "$folder/$archive" ]; then
  is_good "$folder/$archive" || die "$folder/$archive is damaged (its size or sha256 is wrong); remove it and run this again"
else
  trap 'rm -f "$folder/$archive.part"' EXIT
  download "$folder/$archive.part"
  is_good "$folder/$archive.part" || die "what came from $url is not CIFAR-10 (size or sha256 differ); try again later"
  mv "$folder/$archive.part" "$folder/$archive"
fi
tar -xzf "$folder/$archive" -C "$folder"
touch "$folder/cifar-10-batches-bin/.complete"
say "CIFAR-10 is ready: train --dataset cifar10 --data-dir $folder"
