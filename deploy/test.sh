#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds, and runs every test but those with the label "nightly": long simulations and mutants.
# Arguments go to ctest instead: deploy/test.sh -L unit, deploy/test.sh -L nightly
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

"$repo/deploy/setup.sh" --test
build ON
export PATH="$PATH:$cache/programs/usr/bin:$cache/programs/usr/sbin"
# Tests share the cores: an OpenMP thread that spins at the end of a loop takes its core from another test's.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
[ $# -gt 0 ] || set -- -LE nightly
exec ctest --test-dir "$repo/build" --output-on-failure --no-tests=error --parallel "$(nproc)" "$@"
