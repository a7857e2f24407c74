#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A wheel for `pip install`: the programs, the Python package, manual pages and completions, for Linux on x86-64 with glibc 2.31
# or newer. No torch is needed but for train.
#
#   deploy/wheel.sh [--output FOLDER] [every-torch]   default: build/; train for the torch that is built with, or for every one
#                           that deploy/common.sh names (each 11 CPU minutes)
#   deploy/wheel.sh [--output FOLDER] aarch64         for Linux on aarch64: all but train, cross-built in build/aarch64
#   --build FOLDER          packs what is built there; sets nothing up and builds nothing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read_pack_arguments 'every-torch aarch64' "$@"
[ ${#words[@]} -lt 2 ] || die "every-torch is for the wheel of x86-64, and train is not in that of aarch64; name one of them"
[ "$(uname -m)" = x86_64 ] || die "the wheel is made on x86-64 only; on this machine use deploy/bundle.sh"

machine=x86_64
if [ "${words[*]}" = aarch64 ]; then
  machine=aarch64
  . "$repo/deploy/aarch64/cross.sh"
  build_folder=$repo/build/aarch64
fi
if [ -z "$folder" ]; then
  folder=$build_folder
  if [ $machine = aarch64 ]; then
    "$repo/deploy/setup.sh" --aarch64
    build_for_aarch64 OFF
  else
    "$repo/deploy/setup.sh"
    build OFF
    [ ${#words[@]} = 0 ] || build_every_torch
  fi
fi
[ -e "$folder/CMakeCache.txt" ] || die "$folder is no build folder of ddprun; run deploy/wheel.sh without --build"
built_for=$(sed -n 's/^DDPRUN_AARCH64_ROOT:.*/aarch64/p' "$folder/CMakeCache.txt")
[ "${built_for:-x86_64}" = $machine ] ||
  die "$folder is a build for ${built_for:-x86_64} and a wheel for $machine is asked for; name another folder, or leave --build out"
[ $machine = x86_64 ] || use_aarch64_tools
python3 "$repo/deploy/wheel/relink.py" "$folder" "$folder/portable"
exec python3 "$repo/deploy/wheel/pack_wheel.py" "$folder" "$folder/portable" "${output:-$folder}"
