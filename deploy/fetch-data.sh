#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gets CIFAR-10 or CIFAR-100 (binary version) and unpacks it where `train --data-dir DIR` finds it.
#
#   deploy/fetch-data.sh [--dataset cifar10|cifar100] [DIR]     default: cifar10, ~/.cache/ddprun/data
#
# DIR may be a folder that all nodes share. Safe to repeat: what was fetched in part is gone on with, and nothing is
# unpacked before its checksum is right. Without a network: put the archive into DIR by hand and run this again.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

dataset=cifar10
folder=$cache/data
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      sed -n '3,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --dataset)
      dataset=${2:-}
      shift
      ;;
    --dataset=*) dataset=${1#*=} ;;
    -*) die "unknown argument '$1'; deploy/fetch-data.sh takes --dataset and one folder" ;;
    *) folder=$1 ;;
  esac
  shift $(($# > 0 ? 1 : 0))
done

case "$dataset" in
  cifar10)
    title=CIFAR-10 archive=cifar-10-binary.tar.gz unpacked=cifar-10-batches-bin url=${DDPRUN_CIFAR10_URL:-}
    sum=c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd
    ;;
  cifar100)
    title=CIFAR-100 archive=cifar-100-binary.tar.gz unpacked=cifar-100-binary url=${DDPRUN_CIFAR100_URL:-}
    sum=58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec
    ;;
  *) die "--dataset $dataset cannot be fetched; choose cifar10 or cifar100" ;;
esac
url=${url:-https://www.cs.toronto.edu/~kriz/$archive}
mkdir -p "$folder" || die "cannot make the folder $folder; name another one"
part=$folder/$archive.part

is_good() { echo "$sum  $1" | sha256sum --check --status; }

fetch() { # goes on with what is in $part
  curl --fail --location --silent --show-error --connect-timeout 20 --max-time 3600 --continue-at - --output "$part" "$url"
}

download() {
  local by_hand="get $url on another machine, put it at $folder/$archive, and run this again"
  command -v curl >/dev/null || die "curl is not installed; install it (apt-get install curl), or $by_hand"
  if [ -s "$part" ] && is_good "$part"; then return; fi
  if ! fetch; then
    # 33 and 22: the server cannot go on in the middle, or has no more than is there.
    if [ ! -s "$part" ]; then
      rm -f "$part"
      die "$url could not be fetched; $by_hand"
    fi
    say "$url could not be gone on with; fetching it from the beginning"
    mv "$part" "$part.old"
    if ! fetch; then
      # The larger part is the one to go on with.
      if [ "$(stat -c %s "$part" 2>/dev/null || echo 0)" -lt "$(stat -c %s "$part.old")" ]; then mv "$part.old" "$part"; fi
      rm -f "$part.old"
      die "$url could not be fetched; run this again, which goes on with what is there, or $by_hand"
    fi
    rm -f "$part.old"
  fi
}

if [ -e "$folder/$unpacked/.complete" ]; then
  say "$title is in $folder already"
  exit 0
fi
if [ -e "$folder/$archive" ]; then
  is_good "$folder/$archive" || die "$folder/$archive is damaged (its sha256 is wrong); remove it and run this again"
else
  download
  is_good "$part" || {
    rm -f "$part"
    die "what came from $url is not $title (its sha256 differs); try again later"
  }
  mv "$part" "$folder/$archive"
fi
tar -xzf "$folder/$archive" -C "$folder"
touch "$folder/$unpacked/.complete"
say "$title is ready: train --dataset $dataset --data-dir $folder"
