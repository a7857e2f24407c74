#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packages for the Debian or Ubuntu that this runs on: ddprun, ddprun-train, and libddprun-dev once there is a library.
#
#   deploy/deb.sh [--output FOLDER] [every-torch]   default: build/; train and libddprun for the torch that is built with, or for
#                           every one that deploy/common.sh names (each 11 CPU minutes)
#   --build FOLDER          packs what is built there; sets nothing up and builds nothing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read_pack_arguments every-torch "$@"
command -v dpkg-shlibdeps >/dev/null || die "dpkg-shlibdeps is not installed; install dpkg-dev (apt-get install dpkg-dev)"

if [ -z "$folder" ]; then
  folder=$build_folder
  "$repo/deploy/setup.sh"
  build OFF
  [ ${#words[@]} = 0 ] || build_every_torch
fi
[ -e "$folder/CPackConfig.cmake" ] || die "$folder is no build folder of ddprun; run deploy/deb.sh without --build"
mkdir -p "${output:=$folder}"
output=$(cd "$output" && pwd)
# One commit gives the same bytes.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$repo" log -1 --format=%ct 2>/dev/null || date +%s)}
umask 022
cpack -G DEB --config "$folder/CPackConfig.cmake" -B "$folder/deb" >"$folder/cpack.log" 2>&1 || {
  cat "$folder/cpack.log" >&2
  die "the packages could not be made; the lines above say why"
}
mv "$folder"/deb/*.deb "$output"
say "packages in $output:" "$(cd "$output" && echo ./*.deb)"
