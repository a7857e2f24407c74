#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A wheel for `pip install`: the programs, the Python package, manual pages and completions, for Linux on x86-64 with glibc 2.31
# or newer. No torch is needed but for train.
#
#   deploy/wheel.sh [--output FOLDER]   default: build/
#   --build FOLDER          packs what is built there; sets nothing up and builds nothing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

folder='' output=''
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      sed -n '3,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --output | --build)
      [ $# -ge 2 ] || die "$1 needs a path after it"
      if [ "$1" = --output ]; then output=$2; else folder=$2; fi
      shift
      ;;
    *) die "unknown argument '$1'; see deploy/wheel.sh --help" ;;
  esac
  shift
done
[ "$(uname -m)" = x86_64 ] || die "the wheel is made on x86-64 only; on this machine use deploy/bundle.sh"

if [ -z "$folder" ]; then
  folder=$repo/build
  "$repo/deploy/setup.sh"
  build OFF
fi
[ -e "$folder/CMakeCache.txt" ] || die "$folder is no build folder of ddprun; run deploy/wheel.sh without --build"
python3 "$repo/deploy/wheel/relink.py" "$folder" "$folder/portable"
exec python3 "$repo/deploy/wheel/pack_wheel.py" "$folder" "$folder/portable" "${output:-$folder}"
