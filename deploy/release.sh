#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All files of a release of the commit that is checked out: sources, bundle, wheel, Debian packages, and SHA256SUMS.
#
#   deploy/release.sh [--output FOLDER] [KIND...]      default: build/release; KIND: sources bundle wheel deb
#   --build FOLDER          packs what is built there; sets nothing up and builds nothing
#
# The same commit, built on the same system, gives the same bytes: files have the commit's time, and entries are sorted. The
# version is that of project(ddprun VERSION ...) in CMakeLists.txt, and nowhere else; CHANGELOG.md has to have an entry of it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

read_pack_arguments 'sources bundle wheel deb' "$@"
kinds=("${words[@]}")
[ ${#kinds[@]} -gt 0 ] || kinds=(sources bundle wheel deb)

version=$(sed -n 's/^project(ddprun VERSION \([^ ]*\).*/\1/p' "$repo/CMakeLists.txt")
grep -q "^## $version\$" "$repo/CHANGELOG.md" || die "CHANGELOG.md has no entry '## $version'; add it, since users read it first"
[ -z "$(git -C "$repo" status --porcelain)" ] ||
  die "the tree has changes that are not committed, and a release is of a commit; commit or remove them (git status)"
SOURCE_DATE_EPOCH=$(git -C "$repo" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

if [ -z "$folder" ]; then
  folder=$build_folder
  [ "${kinds[*]}" = sources ] || {
    "$repo/deploy/setup.sh"
    build OFF
    build_every_torch
  }
fi
output=${output:-$repo/build/release}
mkdir -p "$output"
output=$(cd "$output" && pwd)

for kind in "${kinds[@]}"; do
  case $kind in
    sources) git -C "$repo" archive --format=tar --prefix="ddprun-$version/" HEAD | gzip -9n >"$output/ddprun-$version.tar.gz" ;;
    bundle) "$repo/deploy/bundle.sh" --build "$folder" --output "$output" ;;
    wheel) "$repo/deploy/wheel.sh" --build "$folder" --output "$output" >/dev/null ;;
    deb) "$repo/deploy/deb.sh" --build "$folder" --output "$output" ;;
  esac
done
cd "$output"
find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%f\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS
say "release $version in $output:"
cat SHA256SUMS
