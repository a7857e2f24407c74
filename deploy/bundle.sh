#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One tarball of at most 64 MB that runs on another Linux of the same kind of processor, with glibc 2.36 or newer and the
# version of torch installed that it was built with: ddprun, ddpctl, ddprun-rendezvous, train, and the libraries that are
# neither LibTorch's nor the C and C++ runtime's. Its README.md says how it is used.
#
#   deploy/bundle.sh [--output PATH]    a file, .tar.gz or .tar.xz, which is smaller; or a folder, where it is named
#                                       ddprun-VERSION-linux-PROCESSOR-torchVERSION; default: build/
#   --tests                 with gpu_test, for tests/gpu/run.sh (needs what deploy/setup.sh --test installs); by default a .tar.xz
#   --with-fashion-mnist    with the images of Fashion-MNIST (30 MB), for a machine that has no network
#   --build FOLDER          packs what is built there; sets nothing up and builds nothing
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

folder='' output='' tests=OFF ending=tar.gz pack=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      sed -n '3,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --tests) tests=ON ending=tar.xz ;;
    --with-fashion-mnist) pack+=("$1") ;;
    --output | --build)
      [ $# -ge 2 ] || die "$1 needs a path after it"
      if [ "$1" = --output ]; then output=$2; else folder=$2; fi
      shift
      ;;
    *) die "unknown argument '$1'; see deploy/bundle.sh --help" ;;
  esac
  shift
done

if [ -z "$folder" ]; then
  folder=$build_folder
  targets=(ddprun ddpctl ddprun-rendezvous ddprun-stacks train)
  if [ "$tests" = ON ]; then
    "$repo/deploy/setup.sh" --test
    targets+=(gpu_test)
  else
    "$repo/deploy/setup.sh"
  fi
  build "$tests" "${targets[@]}"
elif [ "$tests" = ON ] && [ ! -e "$folder/tests/gpu_test" ]; then
  die "$folder has no tests/gpu_test; build the target gpu_test there, or leave --tests out"
fi
exec python3 "$repo/deploy/pack_bundle.py" "$folder" "${output:-$folder}" --ending ".$ending" "${pack[@]}"
