#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What it costs to come from a clone to a trained model: CPU seconds and seconds of each step of deploy/quickstart.sh, in
# a clone of its own without ccache.
#   tests/bench/build_cost.sh             the packages and LibTorch that are installed
#   tests/bench/build_cost.sh --download  LibTorch is downloaded anew, into a folder that is removed at the end
#   tests/bench/build_cost.sh --tests     what deploy/test.sh builds, and no training
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CCACHE_DISABLE=1
with_tests=OFF
for word in "$@"; do
  case $word in
  --download) export DDPRUN_CACHE_DIR=$folder/cache ;;
  --tests) with_tests=ON ;;
  *)
    echo "build_cost.sh: unknown argument '$word'; it takes --download and --tests" >&2
    exit 2
    ;;
  esac
done
git clone --quiet . "$folder/clone"
cd "$folder/clone"

# step NAME COMMAND...: its CPU seconds, those of its children with them, and its seconds by the clock
total_cpu=0 total_wall=0
step() {
  local name=$1 cpu wall
  shift
  TIMEFORMAT='%U %S %R'
  { time "$@" >"$folder/log" 2>&1; } 2>"$folder/time" || {
    tail -20 "$folder/log" >&2
    echo "build_cost.sh: $name failed; the lines above are its last ones" >&2
    exit 1
  }
  read -r cpu wall < <(awk '{ printf "%.0f %.0f", $1 + $2, $3 }' "$folder/time") || true
  printf '%-10s %6d CPU s %6d s\n' "$name" "$cpu" "$wall"
  total_cpu=$((total_cpu + cpu)) total_wall=$((total_wall + wall))
}

build_targets() {
  . deploy/common.sh
  if [ "$with_tests" = ON ]; then build ON; else build OFF ddprun ddprun-rendezvous ddpctl train; fi
}

if [ "$with_tests" = ON ]; then step set-up deploy/setup.sh --test; else step set-up deploy/setup.sh; fi
step build build_targets
[ "$with_tests" = ON ] || step training deploy/quickstart.sh
printf '%-10s %6d CPU s %6d s\n' whole "$total_cpu" "$total_wall"
