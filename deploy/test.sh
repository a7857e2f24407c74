#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds, and runs every test. Arguments go to ctest: deploy/test.sh -L unit
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

"$repo/deploy/setup.sh" --test
build ON
export PATH="$PATH:$cache/programs/usr/bin:$cache/programs/usr/sbin"
exec ctest --test-dir "$repo/build" --output-on-failure --no-tests=error --parallel "$(nproc)" "$@"
