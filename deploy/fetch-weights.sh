#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gets weights that torchvision's ResNets were trained to on ImageNet, to start from: train --init-from FILE.
#
#   deploy/fetch-weights.sh [DIR [MODEL...]]     default: ~/.cache/ddprun/weights, resnet18 resnet34 resnet50
#
# DIR may be a folder that all nodes share. A MODEL may also be FILE:SHA256, another file of the same server with its 64
# digits: a file is taken only if its SHA-256 is the expected one. Safe to repeat; a download that broke off goes on.
#
# Environment: FETCH_BASE_URL, a mirror that has the same files (default https://download.pytorch.org/models).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

base_url=${FETCH_BASE_URL:-https://download.pytorch.org/models}
case "${1:-}" in
  -h | --help)
    sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  -*) die "unknown argument '$1'; deploy/fetch-weights.sh takes a folder and names of models" ;;
esac
folder=${1:-$cache/weights}
shift $(($# > 0 ? 1 : 0))
[ $# -gt 0 ] || set -- resnet18 resnet34 resnet50

# Prints FILE:SHA256. torchvision's files: torchvision/models/resnet.py, IMAGENET1K_V1. Their names have eight digits of
# the sum, which another file can have too.
file_of() { # MODEL
  case "$1" in
    resnet18) echo resnet18-f37072fd.pth:f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec ;;
    resnet34) echo resnet34-b627a593.pth:b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f ;;
    resnet50) echo resnet50-0676ba61.pth:0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a ;;
    *) [[ $1 =~ ^[A-Za-z0-9_][A-Za-z0-9_.-]*:[0-9a-f]{64}$ ]] && echo "$1" ;;
  esac
}

is_good() { # PATH SHA256
  local sum
  [ -e "$1" ] && sum=$(sha256sum "$1") && [ "${sum%% *}" = "$2" ]
}

download() { # FILE SHA256 PART
  local flags=(--fail --location --silent --show-error --connect-timeout 20 --max-time 3600 --output "$3") code=0
  if [ -s "$3" ]; then
    curl "${flags[@]}" --continue-at - "$base_url/$1" || code=$?
    is_good "$3" "$2" && return
    # 0: it was a part of something else. 22, 33, 36: the server has nothing to go on with, or does not do that.
    case $code in
      0 | 22 | 33 | 36) rm -f "$3" ;;
      *) return $code ;;
    esac
  fi
  curl "${flags[@]}" "$base_url/$1"
}

fetch() { # FILE SHA256
  local path=$folder/$1 part=$folder/.$1.part
  local by_hand="get $base_url/$1 on another machine, put it at $path, and run this again"
  if [ -e "$path" ]; then
    is_good "$path" "$2" || die "$path is damaged (its sha256 is not $2); remove it and run this again"
    return
  fi
  if ! is_good "$part" "$2"; then
    command -v curl >/dev/null || die "curl is not installed; install it (apt-get install curl), or $by_hand"
    say "fetching $base_url/$1"
    download "$1" "$2" "$part" || die "$base_url/$1 could not be fetched; run this again to go on, or $by_hand"
    is_good "$part" "$2" || {
      rm -f "$part"
      die "what came from $base_url/$1 is damaged (its sha256 is not $2); try again later, or $by_hand"
    }
  fi
  mv "$part" "$path"
}

files=()
for model in "$@"; do
  files+=("$(file_of "$model")") ||
    die "no weights are known for '$model'; name resnet18, resnet34, resnet50 or a file with its sum, FILE:SHA256"
done
mkdir -p "$folder" || die "cannot make the folder $folder; name another one"
# If several nodes share the folder, one of them fetches.
exec 9>"$folder/.lock" || die "cannot write to $folder; name another folder"
flock -w 7200 9 || die "another deploy/fetch-weights.sh has held $folder/.lock for two hours; end it and try again"
for file in "${files[@]}"; do
  fetch "${file%%:*}" "${file#*:}"
  say "ready: train --init-from $folder/${file%%:*}"
done
