#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A container as a node of a run: every container is started with the same arguments, which are those of `train`.
#
#   docker run --rm ddprun --dataset fashion-mnist                     one container, all there is to do
#   docker run --rm --network host -e WORLD_SIZE=2 -e RANK=0 -e MASTER_ADDR=10.0.0.1 -e DDPRUN_TOKEN ddprun ...
#
# Variables:
#   WORLD_SIZE       how many containers the run has (1)
#   RANK             which of them this one is: 0 to WORLD_SIZE - 1
#   MASTER_ADDR      name or address at which the others reach container 0
#   MASTER_PORT      port there (29500); container 0 must publish it, and workers open more: --network host, or a network
#                    that the containers share
#   DDPRUN_TOKEN     the run's secret, the same for all: 64 hexadecimal digits, as `openssl rand -hex 32` prints them; or
#                    a file /run/secrets/ddprun_token; or DDPRUN_INSECURE=1 on all, where everyone on the network is trusted
#   NPROC_PER_NODE   workers in this container (auto: one for each GPU, or one for each CPU)
#
# Another program than train: docker run --entrypoint ddprun IMAGE ...
set -euo pipefail

secret_file=${DDPRUN_SECRET_FILE:-/run/secrets/ddprun_token}

die() {
  printf 'entrypoint: %s\n' "$*" >&2
  exit 2
}

help() {
  sed -n '3,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  printf '\nWhat follows are the arguments of train:\n\n'
}

# number NAME VALUE LEAST MOST: a sentence unless VALUE is a whole number between them.
number() {
  [[ $2 =~ ^[0-9]{1,6}$ ]] || die "$1='$2' is not a whole number; pass -e $1=$3, for instance"
  ((10#$2 >= $3 && 10#$2 <= $4)) || die "$1=$2 is out of range: it must be $3 to $4"
}

# Container 0 serves the others, so all must know where it is, which one they are, and the secret.
flags_of_several() {
  [ -n "${RANK:-}" ] || die "WORLD_SIZE is $world_size and RANK is not set; pass -e RANK=0 to -e RANK=$((world_size - 1))"
  number RANK "$RANK" 0 $((world_size - 1))
  [ -n "${MASTER_ADDR:-}" ] ||
    die "WORLD_SIZE is $world_size and MASTER_ADDR is not set; pass -e MASTER_ADDR=, the address of container 0, to all"
  number MASTER_PORT "${MASTER_PORT:-29500}" 1 65535
  flags=(--nnodes "$world_size" --node-rank "$((10#$RANK))" --master-addr "$MASTER_ADDR"
    --master-port "${MASTER_PORT:-29500}")
  if [ "${DDPRUN_INSECURE:-0}" = 1 ]; then
    flags+=(--insecure)
  elif [ -z "${DDPRUN_TOKEN:-}" ] && [ -r "$secret_file" ]; then
    # Docker's secrets can be read by all of a container, which --token-file would not have.
    DDPRUN_TOKEN=$(<"$secret_file")
    export DDPRUN_TOKEN
  elif [ -z "${DDPRUN_TOKEN:-}" ] && [ ! -r "${XDG_CONFIG_HOME:-$HOME/.config}/ddprun/token" ]; then
    die "DDPRUN_TOKEN is not set; pass the same -e DDPRUN_TOKEN=\$(openssl rand -hex 32) to all containers," \
      "or -e DDPRUN_INSECURE=1 to all where everyone on their network is trusted"
  fi
}

case "${1:-}" in
  -h | --help)
    help
    exec train --help
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
exec ddprun "${flags[@]}" --nproc-per-node "${NPROC_PER_NODE:-auto}" train "$@"
