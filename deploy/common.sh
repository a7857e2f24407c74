# shellcheck shell=bash
# shellcheck disable=SC2034  # what is set here is read by the scripts that source this
# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: where things are, and how to say that something is wrong.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Every version that train and libddprun are built for, each with a list in deploy/torch/; the last is taken unless told otherwise.
torch_versions=(2.11.0 2.12.1 2.13.0 2.14.1 2.15.0)
torch_wanted=${DDPRUN_TORCH_VERSION:-} # empty: any of them, or a newer one
torch_version=${torch_wanted:-${torch_versions[-1]}}
build_folder=$repo/build${torch_wanted:+/torch-${torch_wanted%.*}}
cache=${DDPRUN_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ddprun}
book_environment=$cache/book
kubernetes_environment=$cache/kubernetes
images_environment=$cache/images

say() { printf 'ddprun: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

[[ " ${torch_versions[*]} " == *" $torch_version "* ]] ||
  die "DDPRUN_TORCH_VERSION is $torch_version, which deploy/torch/ has no list of; name one of ${torch_versions[*]}, or a Python" \
    "that has another torch: DDPRUN_PYTHON"

# Prints the packages of section $1 of deploy/packages.txt.
packages_of() { sed -n "/^\[$1\]\$/,/^\[/{/^[^#[]/p}" "$repo/deploy/packages.txt"; }

# Whether $1 is a Python whose torch is built for CUDA and of a version that will do; prints the folder of that torch.
# Reads torch/version.py instead of importing torch, which takes seconds.
torch_dir_of() {
  "$1" - "${torch_versions[0]}" "$torch_wanted" <<'PY' 2>/dev/null
import importlib.util, os, re, sys
spec = importlib.util.find_spec("torch")
if spec is None or not spec.submodule_search_locations:
    sys.exit(1)
folder = list(spec.submodule_search_locations)[0]
scope = {}
exec(open(os.path.join(folder, "version.py")).read(), scope)
number = lambda text: [int(n) for n in re.findall(r"\d+", text.split("+")[0])[:3]]
found, wanted = number(scope["__version__"]), number(sys.argv[2])
if found < number(sys.argv[1]) or (wanted and found[:2] != wanted[:2]) or not scope.get("cuda"):
    sys.exit(1)
print(folder)
PY
}

# The Python to use, in this order: $DDPRUN_PYTHON, the environment in the cache, a python3 that has its own torch.
# Prints nothing and fails if there is none yet: deploy/setup.sh makes one.
find_python() {
  local candidate
  if [ -n "${DDPRUN_PYTHON:-}" ]; then
    torch_dir_of "$DDPRUN_PYTHON" >/dev/null && command -v "$DDPRUN_PYTHON"
    return
  fi
  for candidate in "$cache/torch-$torch_version/bin/python" "$cache/tools/bin/python" python3; do
    if command -v "$candidate" >/dev/null && torch_dir_of "$candidate" >/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

# The version of CUDA that the torch in folder $1 is built for, for instance 13.2.
cuda_of() { sed -n "s/^cuda[^=]*= '\([0-9]*\.[0-9]*\).*/\1/p" "$1/version.py"; }

# The folder that has crt/host_defines.h and nv/target: beside the torch in folder $1, or in the cache. Nothing if there
# is none.
find_cuda_headers() {
  local folder
  for folder in "$1"/../nvidia/*/include "$cache/cuda-headers-$(cuda_of "$1")"/nvidia/*/include; do
    [ -e "$folder/crt/host_defines.h" ] && [ -e "$folder/nv/target" ] && echo "$folder" && return
  done
  return 0
}

# Configures $build_folder, with tests or not (ON or OFF).
configure() {
  local with_tests=$1 python torch_dir
  mkdir -p "$build_folder"
  # A build folder that has the tests keeps them: only what is asked for is built either way.
  if grep -qs '^DDPRUN_WITH_TESTS:[A-Z]*=ON$' "$build_folder/CMakeCache.txt"; then with_tests=ON; fi
  python=$(find_python) || die "no Python with torch ${torch_wanted:->= ${torch_versions[0]}} was found; run deploy/setup.sh"
  torch_dir=$(torch_dir_of "$python")
  cmake -S "$repo" -B "$build_folder" -G Ninja -DDDPRUN_TORCH_DIR="$torch_dir" -DDDPRUN_PYTHON="$python" \
    -DDDPRUN_CUDA_EXTRA_INCLUDE_DIR="$(find_cuda_headers "$torch_dir")" \
    -DDDPRUN_WITH_TESTS="$with_tests" >"$build_folder/configure.log" 2>&1 || {
    cat "$build_folder/configure.log" >&2
    die "configuring failed; the lines above say why"
  }
  # A torch that nobody has tried: CMake's line on it, among many others.
  sed -n 's/^-- \(LibTorch .* is newer than .*\)/ddprun: \1/p' "$build_folder/configure.log" >&2
}

# Builds the targets that are named; all if none is named.
compile() {
  local target targets=()
  for target in "$@"; do targets+=(--target "$target"); done
  cmake --build "$build_folder" "${targets[@]}"
}

# Configures $build_folder and builds the targets named after the first argument (ON or OFF: with tests); all if none named.
build() {
  configure "$1"
  compile "${@:2}"
}

# Builds what is made for one LibTorch, train and libddprun, for each other version that there is a list for: in build/torch-2.11
# and so on, where the scripts that pack find it.
build_every_torch() {
  local version own
  own=$(sed -n "s/^__version__ *= *'\([0-9]*\.[0-9]*\).*/\1/p" "$(torch_dir_of "$(find_python)")/version.py")
  for version in "${torch_versions[@]}"; do
    [ "${version%.*}" != "$own" ] || continue
    say "building train and libddprun for torch $version"
    env -u DDPRUN_PYTHON DDPRUN_TORCH_VERSION="$version" bash -euo pipefail -c '
      "$1/deploy/setup.sh"
      . "$1/deploy/common.sh"
      build OFF train ddprun_library' - "$repo"
  done
}

# Reads the arguments of a script that packs: --output PATH, --build FOLDER, and words that stand in $1. Sets `output`, `folder`
# and `words`. --help prints the comment at the script's beginning.
read_pack_arguments() { # WORDS ARGUMENT...
  local known=" $1 "
  folder='' output='' words=()
  shift
  while [ $# -gt 0 ]; do
    case "$1" in
      -h | --help)
        sed -n '3,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
        exit 0
        ;;
      --output | --build)
        [ $# -ge 2 ] || die "$1 needs a path after it"
        if [ "$1" = --output ]; then output=$2; else folder=$2; fi
        shift
        ;;
      *)
        [ -n "$1" ] && [[ $known == *" $1 "* ]] || die "unknown argument '$1'; see deploy/$(basename "$0") --help"
        words+=("$1")
        ;;
    esac
    shift
  done
}
