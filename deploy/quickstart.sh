#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to a trained network: sets up, builds, and trains NetResDeep on Fashion-MNIST with two workers.
# Arguments go to `train`, after those of the configuration: deploy/quickstart.sh --epochs 1
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

"$repo/deploy/setup.sh"
build OFF
exec "$build_folder/bin/ddprun" --standalone --nproc-per-node 2 train \
  --config "$repo/deploy/configs/netresdeep-fashion-mnist.yaml" --output-dir "$build_folder/quickstart" "$@"
