#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gets weights that torchvision's ResNets were trained to on ImageNet, to start from: train --init-from FILE.
#
#   deploy/fetch-weights.sh [DIR [MODEL...]]     default: ~/.cache/ddprun/weights, resnet18 resnet34 resnet50
#
# DIR may be a folder that all nodes share. A MODEL may also be the name of a file: the first eight digits of its SHA-256
# stand in it (resnet18-f37072fd.pth), and are checked. Safe to repeat; a download that broke off goes on where it was.
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

# torchvision's files: torchvision/models/resnet.py, IMAGENET1K_V1.
file_of() { # MODEL
  case "$1" in
    resnet18) echo resnet18-f37072fd.pth ;;
    resnet34) echo resnet34-b627a593.pth ;;
    resnet50) echo resnet50-0676ba61.pth ;;
    *) [[ $1 =~ ^[A-Za-z0-9_.]+-[0-9a-f]{8}\.pth$ ]] && echo "$1" ;;
  esac
}

is_good() { # PATH FILE
  local sum digits=${2%.pth}
  [ -e "$1" ] && sum=$(sha256sum "$1") && [ "${sum:0:8}" = "${digits: -8}" ]
}

download() { # FILE PART
  local flags=(--fail --location --silent --show-error --connect-timeout 20 --max-time 3600 --output "$2") code=0
  if [ -s "$2" ]; then
    curl "${flags[@]}" --continue-at - "$base_url/$1" || code=$?
    is_good "$2" "$1" && return
    # 0: it was a part of something else. 22, 33, 36: the server has nothing to go on with, or does not do that.
    case $code in
      0 | 22 | 33 | 36) rm -f "$2" ;;
      *) return $code ;;
    esac
  fi
  curl "${flags[@]}" "$base_url/$1"
}

fetch() { # FILE
  local path=$folder/$1 part=$folder/.$1.part
  local by_hand="get $base_url/$1 on another machine, put it at $path, and run this again"
  if [ -e "$path" ]; then
    is_good "$path" "$1" || die "$path is damaged (its sha256 does not begin as its name says); remove it and run this again"
    return
  fi
  if ! is_good "$part" "$1"; then
    command -v curl >/dev/null || die "curl is not installed; install it (apt-get install curl), or $by_hand"
    say "fetching $base_url/$1"
    download "$1" "$part" || die "$base_url/$1 could not be fetched; run this again to go on, or $by_hand"
    is_good "$part" "$1" || {
      rm -f "$part"
      die "what came from $base_url/$1 is damaged (its sha256 does not begin as its name says); try again later, or $by_hand"
    }
  fi
  mv "$part" "$path"
}

files=()
for model in "$@"; do
  files+=("$(file_of "$model")") ||
    die "no weights are known for '$model'; name resnet18, resnet34, resnet50 or a file like resnet18-f37072fd.pth"
done
mkdir -p "$folder" || die "cannot make the folder $folder; name another one"
# Of several nodes that share the folder one fetches.
exec 9>"$folder/.lock" || die "cannot write to $folder; name another folder"
flock -w 7200 9 || die "another deploy/fetch-weights.sh has held $folder/.lock for two hours; end it and try again"
for file in "${files[@]}"; do
  fetch "$file"
  say "ready: train --init-from $folder/$file"
done
