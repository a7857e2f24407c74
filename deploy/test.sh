#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds, and runs every test but those with the label "nightly" or "weekly" (tests/README.md says what these are).
# Arguments go to ctest instead: deploy/test.sh -L unit, deploy/test.sh -L nightly
# Prints how long each phase took, how often the compiler cache was hit, the dearest tests, and the skipped ones.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

records=$build_folder/test-report phases=() begun=$SECONDS
phase() { # NAME: of what has ended
  phases+=("$1 $((SECONDS - begun)) s")
  begun=$SECONDS
}
print_phases() {
  local IFS=,
  say "time:${phases[*]/#/ }"
}
trap print_phases EXIT

# Counts this build alone, whatever else uses the cache.
print_cache_hits() {
  if ! command -v ccache >/dev/null; then
    say "compiler cache: ccache is not installed"
  elif [ ! -s "$CCACHE_STATSLOG" ]; then
    say "compiler cache: nothing was compiled"
  else
    say "compiler cache ($(ccache --get-config cache_dir)):"
    ccache --show-log-stats >&2
  fi
}

"$repo/deploy/setup.sh" --test
phase set-up
rm -rf "$records"/{junit.xml,records.jsonl,ccache.log}
mkdir -p "$records"
export CCACHE_STATSLOG=$records/ccache.log
configure ON
phase configure
compile
phase build
print_cache_hits

export PATH="$PATH:$cache/programs/usr/bin:$cache/programs/usr/sbin"
# Tests share the cores: an OpenMP thread that spins at the end of a loop takes its core from another test's.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"
export DDPRUN_TEST_RECORDS=$records/records.jsonl
report=(python3 "$repo/tests/ci_report.py" report "$records")
[[ " $* " != *" nightly "* ]] || report+=(--nightly)
python3 "$repo/tests/ci_report.py" calibrate "$records"
[ $# -gt 0 ] || set -- -LE 'nightly|weekly'
# Busy tests share the cores; those that only wait (property RESOURCE_GROUPS empty) run beside them.
printf '{"version": {"major": 1, "minor": 0}, "local": [{"cpus": [{"id": "0", "slots": %d}]}]}\n' "$(nproc)" \
  >"$records/resources.json"
code=0
ctest --test-dir "$build_folder" --output-on-failure --no-tests=error --parallel "$(($(nproc) + 1))" \
  --resource-spec-file "$records/resources.json" --output-junit "$records/junit.xml" --test-output-size-passed 1000000 "$@" ||
  code=$?
phase tests
"${report[@]}" || [ "$code" != 0 ] || code=1
exit "$code"
