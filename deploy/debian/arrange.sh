#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# arrange.sh FOLDER VERSION BUILD CONTACT: gives the files of each package, installed in FOLDER/COMPONENT/usr, the places and
# forms that Debian's policy asks for. Called by CPack (debian.cmake).
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
root=$1 version=$2 build=$3 contact=$4
# The versions of torch that there is a build for; see builds_by_torch() of pack_bundle.py.
declare -A builds=()
while IFS=$'\t' read -r torch folder; do builds[$torch]=$folder; done < <(python3 "$repo/deploy/pack_bundle.py" --builds "$build")
moment=${SOURCE_DATE_EPOCH:-$(git -C "$repo" log -1 --format=%ct 2>/dev/null || date +%s)}

document() { # COMPONENT PACKAGE PROGRAM...
  local usr=$root/$1/usr
  local folder=$usr/share/doc/$2
  shift 2
  mkdir -p "$folder"
  {
    printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: ddprun\n\n'
    printf 'Files: *\nCopyright: 2025 the ddprun developers\nLicense: Apache-2.0\n'
    printf ' On Debian systems, the text of the Apache License, version 2.0, is in\n /usr/share/common-licenses/Apache-2.0.\n'
    [ $# = 0 ] || python3 "$repo/deploy/debian/terms.py" "$build" "$@"
  } >"$folder/copyright"
  printf 'ddprun (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
    "$version" "$contact" "$(LC_ALL=C date -u -R -d "@$moment")" | gzip -9n >"$folder/changelog.Debian.gz"
  if [ -e "$repo/CHANGELOG.md" ]; then gzip -9nc "$repo/CHANGELOG.md" >"$folder/changelog.gz"; fi
  find "$usr/share/man" -name '*.1' -exec gzip -9n {} + 2>/dev/null || true
}

launcher() {
  local usr=$root/launcher/usr
  mkdir -p "$usr/share/zsh/vendor-completions" "$usr/lib/python3/dist-packages"
  mv "$usr/share/zsh/site-functions/_ddprun" "$usr/share/zsh/vendor-completions/"
  rmdir "$usr/share/zsh/site-functions"
  rm "$usr/share/ddprun/LICENSE" # in copyright
  mv "$usr/share/ddprun/python/ddprun" "$usr/lib/python3/dist-packages/"
  rmdir "$usr/share/ddprun/python"
}

# As in the bundle: bin/train finds LibTorch and becomes the train that is for it in libexec/ddprun. But here nothing is
# remembered, since users of one machine have a torch each.
train() {
  local usr=$root/train/usr torch file
  mkdir -p "$usr/libexec/ddprun"
  mv "$usr/bin/ddprun-plot" "$usr/libexec/ddprun/"
  for torch in "${!builds[@]}"; do
    mkdir "$usr/libexec/ddprun/torch-$torch"
    for file in train libddprun_cuda.so; do
      if [ -e "${builds[$torch]}/bin/$file" ]; then
        strip --strip-unneeded -o "$usr/libexec/ddprun/torch-$torch/$file" "${builds[$torch]}/bin/$file"
        patchelf --remove-rpath "$usr/libexec/ddprun/torch-$torch/$file"
      fi
    done
  done
  rm -f "$usr/bin/train" "$usr/bin/libddprun_cuda.so" # the build's own, which are among those
  ln -s ../../bin/ddprun "$usr/libexec/ddprun/ddprun"
  sed -e '3,9d' \
    -e '2a # Finds LibTorch, which no package brings, and becomes the train for it, /usr/libexec/ddprun/torch-VERSION/train:\' \
    -e '# train [--torch FOLDER] ARGUMENTS..., else $DDPRUN_TORCH, else the torch of the python3 in PATH.' \
    -e 's|^programs=.*|programs=$root/libexec/ddprun|' \
    -e 's|^link=.*|link=/nonexistent|' \
    -e '/ ln -sn /d' \
    "$repo/deploy/bundle/train" >"$usr/bin/train"
  chmod 755 "$usr/bin/train"
}

# Beside the library for the build's own LibTorch, which is installed, those for the others.
library() {
  local folder torch
  folder=$(echo "$root"/dev/usr/lib/*/ddprun)
  for torch in "${!builds[@]}"; do
    mkdir -p "$folder/torch-$torch"
    cp "${builds[$torch]}/lib/libddprun.a" "$folder/torch-$torch/"
  done
}

if [ -d "$root/launcher" ]; then
  launcher
  document launcher ddprun ddprun ddpctl ddprun-rendezvous ddprun-stacks ddprun-metrics.so
fi
if [ -d "$root/train" ]; then
  train
  document train ddprun-train train ddprun-plot libddprun_cuda.so
fi
if [ -d "$root/dev" ]; then
  library
  document dev libddprun-dev lib/libddprun.a
fi
# CPack packs with these modes.
find "$root" -mindepth 1 -type d -exec chmod 755 {} +
find "$root" -type f -perm /111 -exec chmod 755 {} + -o -type f -exec chmod 644 {} +
