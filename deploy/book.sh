#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the book, a site that needs no network when it is read: open build/book/index.html. Its pages are deploy/book/pages,
# the README and the documents of all folders; the reference is made of the programs' own --help.
#
#   deploy/book.sh [--output FOLDER] [--programs FOLDER]
#
#   --output FOLDER      where the site goes (build/book); what is there is replaced
#   --programs FOLDER    a folder with ddprun, ddpctl, ddprun-rendezvous and train; otherwise they are built into build/bin,
#                        and what is missing is installed first (deploy/setup.sh --book)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

output=$repo/build/book programs=
while [ $# -gt 0 ]; do
  case "$1" in
    --output | --programs)
      [ $# -gt 1 ] || die "$1 needs a folder; see deploy/book.sh --help"
      if [ "$1" = --output ]; then output=$(realpath -m "$2"); else programs=$(realpath -m "$2"); fi
      shift 2
      ;;
    -h | --help)
      sed -n '3,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die "unknown argument '$1'; see deploy/book.sh --help" ;;
  esac
done

if [ -z "$programs" ]; then
  "$repo/deploy/setup.sh" --book
  build OFF ddprun ddprun-rendezvous ddpctl train
  programs=$build_folder/bin
fi
[ -x "$book_environment/bin/mkdocs" ] || die "mkdocs-material is not installed; run deploy/setup.sh --book"
export DDPRUN_BOOK_PROGRAMS=$programs NO_MKDOCS_2_WARNING=1 PYTHONDONTWRITEBYTECODE=1
"$book_environment/bin/mkdocs" build --quiet --strict --config-file "$repo/deploy/book/mkdocs.yml" --site-dir "$output"
say "the book is in $output: open $output/index.html"
