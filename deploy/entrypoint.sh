#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A container as a node of a run: every container is started with the same arguments, which are those of `train`.
#
#   docker run --rm ddprun --dataset fashion-mnist                     one container, with images that it has
#   docker run --rm --network host -e WORLD_SIZE=2 -e RANK=0 -e MASTER_ADDR=10.0.0.1 -e DDPRUN_TOKEN ddprun ...
#   docker run --rm ddprun fetch-data [--dataset cifar100]             gets a data set into /work/cache (mount a folder there)
#   docker run --rm ddprun fetch-weights DIR [MODEL...]                and weights to start from
#
# To keep what it writes: mkdir -p out && docker run --user "$(id -u):$(id -g)" -v "$PWD/out:/work" ...
#
# Variables:
#   WORLD_SIZE       how many containers the run has (1)
#   RANK             which of them this one is: 0 to WORLD_SIZE - 1
#   MASTER_ADDR      name or address at which the others reach container 0. On a bridge that is the host's, and container 0
#                    publishes the port (-p 29500:29500): it then listens on all of its own addresses
#   MASTER_PORT      port there (29500). Workers open more ports to each other: containers on several hosts need --network
#                    host or an overlay network, those on one host share a bridge
#   DDPRUN_TOKEN     the run's secret, 64 hexadecimal digits. Make it on one host, and set the same on the others:
#                      export DDPRUN_TOKEN=$(openssl rand -hex 32); echo "export DDPRUN_TOKEN=$DDPRUN_TOKEN"
#                    then pass -e DDPRUN_TOKEN. Or a file /run/secrets/ddprun_token; or DDPRUN_INSECURE=1 on all, where
#                    everyone on the network is trusted
#   NPROC_PER_NODE   workers in this container (one for each GPU that it is given, else 1)
#
# Another program than train: docker run --entrypoint ddprun IMAGE ...
set -euo pipefail

secret_file=${DDPRUN_SECRET_FILE:-/run/secrets/ddprun_token}
scripts=$(dirname "${BASH_SOURCE[0]}")
[ ! -d "$scripts/../deploy" ] || scripts=$scripts/../deploy

say() { printf 'entrypoint: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 2
}

bracketed() { [[ $1 == *:* ]] && echo "[$1]" || echo "$1"; }

help() {
  sed -n '3,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  printf '\nWhat follows are the arguments of train:\n\n'
}

# A container is one process of a run unless it has GPUs: a world that grew with the host's CPUs would surprise.
default_workers() {
  if compgen -G "${DDPRUN_DEVICES:-/dev}/nvidia[0-9]*" >/dev/null; then echo gpu; else echo 1; fi
}

# number NAME VALUE LEAST MOST: a sentence unless VALUE is a whole number between them.
number() {
  [[ $2 =~ ^[0-9]{1,6}$ ]] || die "$1='$2' is not a whole number; pass -e $1=$3, for instance"
  ((10#$2 >= $3 && 10#$2 <= $4)) || die "$1=$2 is out of range: it must be $3 to $4"
}

# ddprun's sentences name these instead of its flags.
export DDPRUN_FLAG_NAMES="--nnodes=WORLD_SIZE --node-rank=RANK --master-addr=MASTER_ADDR --master-port=MASTER_PORT
 --rdzv-endpoint=MASTER_ADDR --nproc-per-node=NPROC_PER_NODE --join-timeout=PET_JOIN_TIMEOUT --insecure=DDPRUN_INSECURE=1"
# The message about data that are missing says how a container gets them.
export DDPRUN_FETCH_DATA="docker run --rm -v \"\$PWD/out:/work\" ddprun fetch-data"

# Whether MASTER_ADDR is an address of this container. One that cannot be resolved is left to ddprun's own sentence.
is_here() {
  local address own
  own=" $(hostname -I 2>/dev/null || true) "
  while read -r address _; do
    case "$address" in
      127.* | ::1) return 0 ;;
    esac
    [[ $own != *" $address "* ]] || return 0
    found=$address
  done < <(getent ahosts "$MASTER_ADDR" || true)
  [ -z "${found:-}" ]
}

# Container 0 serves the others, so all must know where it is, which one they are, and the secret.
flags_of_several() {
  [ -n "${RANK:-}" ] || die "WORLD_SIZE is $world_size and RANK is not set; pass -e RANK=0 to -e RANK=$((world_size - 1))"
  number RANK "$RANK" 0 $((world_size - 1))
  [ -n "${MASTER_ADDR:-}" ] ||
    die "WORLD_SIZE is $world_size and MASTER_ADDR is not set; pass -e MASTER_ADDR=, the address of container 0, to all"
  number MASTER_PORT "${MASTER_PORT:-29500}" 1 65535
  flags=(--nnodes "$world_size" --node-rank "$((10#$RANK))")
  if [ "$((10#$RANK))" = 0 ] && ! is_here; then
    say "MASTER_ADDR=$MASTER_ADDR is no address of this container: listening on all of its own, at port" \
      "${MASTER_PORT:-29500}, which must be published (-p ${MASTER_PORT:-29500}:${MASTER_PORT:-29500})"
    flags+=(--rdzv-endpoint "$(bracketed "$MASTER_ADDR"):${MASTER_PORT:-29500}" --rdzv-conf is_host=true)
  else
    flags+=(--master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}")
  fi
  if [ "${DDPRUN_INSECURE:-0}" = 1 ]; then
    flags+=(--insecure)
  elif [ -z "${DDPRUN_TOKEN:-}" ] && [ -r "$secret_file" ]; then
    # Docker's secrets can be read by all of a container, which --token-file would not have.
    DDPRUN_TOKEN=$(<"$secret_file")
    export DDPRUN_TOKEN
  elif [ -z "${DDPRUN_TOKEN:-}" ] && [ ! -r "${XDG_CONFIG_HOME:-$HOME/.config}/ddprun/token" ]; then
    die "DDPRUN_TOKEN is not set; on one host" \
      "\`export DDPRUN_TOKEN=\$(openssl rand -hex 32); echo \"export DDPRUN_TOKEN=\$DDPRUN_TOKEN\"\`," \
      "on the others the line that it prints, and -e DDPRUN_TOKEN for all containers;" \
      "or -e DDPRUN_INSECURE=1 for all where everyone on their network is trusted"
  fi
}

case "${1:-}" in
  -h | --help)
    help
    exec train --help
    ;;
esac

# Data sets are looked for, and put, where they outlast the container if its folder is mounted.
export DDPRUN_CACHE_DIR=${DDPRUN_CACHE_DIR:-$PWD/cache}
[ -w "${HOME:-/nowhere}" ] || export HOME=$PWD
[ -w . ] ||
  die "$PWD cannot be written by user $(id -u); before docker makes it as root's: mkdir -p out, then" \
    "docker run --user \"\$(id -u):\$(id -g)\" -v \"\$PWD/out:$PWD\" ... (or chown it to $(id -u))"
case "${1:-}" in
  fetch-data | fetch-weights)
    script=$scripts/$1.sh
    shift
    exec "$script" "$@"
    ;;
esac
world_size=${WORLD_SIZE:-1}
number WORLD_SIZE "$world_size" 1 100000
world_size=$((10#$world_size))
if [ "$world_size" = 1 ]; then
  [ "${RANK:-0}" = 0 ] || die "RANK is $RANK and WORLD_SIZE is ${WORLD_SIZE:-not set}; pass -e WORLD_SIZE=, the number of containers"
  flags=(--standalone)
else
  flags_of_several
fi
# They said which container this is; which worker a worker is, ddprun says.
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
exec ddprun "${flags[@]}" --nproc-per-node "${NPROC_PER_NODE:-$(default_workers)}" train "$@"
