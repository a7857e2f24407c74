#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A wheel for `pip install`: the programs, the Python package, manual pages and completions, for Linux on x86-64 with glibc 2.31
# or newer. No torch is needed but for train.
#
#   deploy/wheel.sh [--output FOLDER] [every-torch]   default: build/; train for the torch that is built with, or for every one
#                           that deploy/common.sh names (each 15 minutes of two cores)
#   --build FOLDER          packs what is built there; sets nothing up and builds nothing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read_pack_arguments every-torch "$@"
[ "$(uname -m)" = x86_64 ] || die "the wheel is made on x86-64 only; on this machine use deploy/bundle.sh"

if [ -z "$folder" ]; then
  folder=$build_folder
  "$repo/deploy/setup.sh"
  build OFF
  [ ${#words[@]} = 0 ] || build_every_torch
fi
[ -e "$folder/CMakeCache.txt" ] || die "$folder is no build folder of ddprun; run deploy/wheel.sh without --build"
python3 "$repo/deploy/wheel/relink.py" "$folder" "$folder/portable"
exec python3 "$repo/deploy/wheel/pack_wheel.py" "$folder" "$folder/portable" "${output:-$folder}"
