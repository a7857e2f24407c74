# shellcheck shell=bash
# shellcheck disable=SC2034  # what is set here is read by the scripts that source this
# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: where things are, and how to say that something is wrong.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
torch_version=2.11.0
cache=${DDPRUN_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ddprun}
book_environment=$cache/book

say() { printf 'ddprun: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# Whether $1 is a Python whose torch is at least $torch_version and built for CUDA; prints the folder of that torch.
# Reads torch/version.py instead of importing torch, which takes seconds.
torch_dir_of() {
  "$1" - "$torch_version" <<'PY' 2>/dev/null
import importlib.util, os, re, sys
spec = importlib.util.find_spec("torch")
if spec is None or not spec.submodule_search_locations:
    sys.exit(1)
folder = list(spec.submodule_search_locations)[0]
scope = {}
exec(open(os.path.join(folder, "version.py")).read(), scope)
number = lambda text: [int(n) for n in re.findall(r"\d+", text.split("+")[0])[:3]]
if number(scope["__version__"]) < number(sys.argv[1]) or not scope.get("cuda"):
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

# The folder that has crt/host_defines.h and nv/target: beside the torch in folder $1, or in the cache. Nothing if there
# is none.
find_cuda_headers() {
  local folder
  for folder in "$1"/../nvidia/*/include "$cache"/cuda-headers/nvidia/*/include; do
    [ -e "$folder/crt/host_defines.h" ] && [ -e "$folder/nv/target" ] && echo "$folder" && return
  done
  return 0
}

# Configures build/, with tests or not (ON or OFF).
configure() {
  local with_tests=$1 python torch_dir
  mkdir -p "$repo/build"
  # A build folder that has the tests keeps them: only what is asked for is built either way.
  if grep -qs '^DDPRUN_WITH_TESTS:[A-Z]*=ON$' "$repo/build/CMakeCache.txt"; then with_tests=ON; fi
  python=$(find_python) || die "no Python with torch >= $torch_version was found; run deploy/setup.sh"
  torch_dir=$(torch_dir_of "$python")
  cmake -S "$repo" -B "$repo/build" -G Ninja -DDDPRUN_TORCH_DIR="$torch_dir" -DDDPRUN_PYTHON="$python" \
    -DDDPRUN_CUDA_EXTRA_INCLUDE_DIR="$(find_cuda_headers "$torch_dir")" \
    -DDDPRUN_WITH_TESTS="$with_tests" >"$repo/build/configure.log" 2>&1 || {
    cat "$repo/build/configure.log" >&2
    die "configuring failed; the lines above say why"
  }
}

# Builds the targets that are named; all if none is named.
compile() {
  local target targets=()
  for target in "$@"; do targets+=(--target "$target"); done
  cmake --build "$repo/build" "${targets[@]}"
}

# Configures build/ and builds the targets named after the first argument (ON or OFF: with tests); all if none named.
build() {
  configure "$1"
  compile "${@:2}"
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
