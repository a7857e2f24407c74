#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The GPU tests and benchmarks, from a bundle (deploy/bundle.sh --tests) and a Python with the bundle's torch for CUDA 13: no
# compiler and nothing else is needed. Prints one JSON document on standard output, all else on standard error. Ends with
# 0 if what ran is as it must be, also if nothing could run, and with 1 if a test failed or a hard expectation was missed.
#
#   tests/gpu/run.sh [--bundle FOLDER_OR_TARBALL] [--torch FOLDER] [--minutes NUMBER] [--only NAME,...] [--output FOLDER]
#                    [--quick] [--data-dir FOLDER] [--rehearse]
#   tests/gpu/run.sh --list | --merge FOLDER [--table]
#
#   --bundle    default: the bundle that this script is in, else the newest build/ddprun-*.tar.?z
#   --torch     the folder of the torch package; default: that of python3
#   --minutes   so long at most, 12 by default: checks are made in the order of their importance (--list)
#   --output    also keep the document in this folder, written after each check: nothing is lost if the script is killed
#   --merge     print one document of all that are in this folder; with --table that of tests/bench/RESULTS.md
#   --quick     each measured twice instead of three times
#   --data-dir  where Fashion-MNIST or CIFAR-10 is
#   --rehearse  all on the CPU with a few steps: shows that the script works; its figures mean nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)

die() {
  echo "run.sh: $*" >&2
  exit 2
}

torch=
take=0
for word in "$@"; do
  case $word in
    -h | --help)
      sed -n '3,19s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    --torch=*) torch=${word#--torch=} ;;
    --torch) take=1 ;;
    *) if [ $take = 1 ]; then torch=$word take=0; fi ;;
  esac
done

# The Python of the environment that the torch lies in knows all of its packages; else any python3 is lent the folder.
python=$(command -v python3) || python=
if [ -n "$torch" ]; then
  [ -e "$torch/lib/libtorch_cpu.so" ] || die "--torch $torch is not the folder of a torch package: it has no lib/libtorch_cpu.so"
  torch=$(cd "$torch" && pwd)
  if [ -x "$torch/../../../../bin/python3" ]; then
    python=$torch/../../../../bin/python3
  else
    PYTHONPATH=$(dirname "$torch")${PYTHONPATH:+:$PYTHONPATH}
    export PYTHONPATH
  fi
fi
[ -n "$python" ] || die "there is no python3 in PATH; name the folder of a torch package in its environment with --torch"
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/gpu_checks.py" "$@"
