#!/usr/bin/env bash
# Start a training on several processes:
#   recipes/scale/launch.sh 2 wqa train cascade --kvstore dist_sync --train ... --out runs/cascade
#
# N workers run here, with one server that sums gradients, and a scheduler on the first machine. All are COMMAND with another
# DMLC_ROLE. Where one fails, all are ended, and the exit status is that of the first. SIGINT and SIGTERM let the workers end after
# their update. docs/training.md has the variables of several machines; DMLC_INTERFACE is the network interface, where a machine has
# several.
set -euo pipefail

[[ $# -ge 2 && $1 =~ ^[1-9][0-9]*$ ]] || { echo "usage: launch.sh N COMMAND..." >&2; exit 2; }
count=$1
shift
machines=${MACHINES:-1}
machine=${MACHINE:-${SLURM_NODEID:-${JOB_COMPLETION_INDEX:-0}}}
export DMLC_NUM_WORKER=$((count * machines)) DMLC_NUM_SERVER=$machines
if [[ $machines == 1 ]]; then
    machine=0 # nothing listens on a network
    export DMLC_PS_ROOT_URI=127.0.0.1 DMLC_NODE_HOST=127.0.0.1
    export DMLC_PS_ROOT_PORT=$((20000 + RANDOM % 12000))
else
    # The name of a pod is known some time after it has started. The scheduler listens at all addresses.
    : "${DMLC_PS_ROOT_URI:?is the address of machine 0}"
    until address=$(getent ahostsv4 "$DMLC_PS_ROOT_URI"); do sleep 5; done
    export DMLC_PS_ROOT_URI=${address%% *} DMLC_USE_KUBERNETES=1
    export DMLC_PS_ROOT_PORT=${DMLC_PS_ROOT_PORT:-9091}
fi
threads=$(($(nproc) / count))
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}

running=() workers=()
trap 'kill -KILL "${running[@]}" 2>/dev/null || true' EXIT
# Slurm signals all processes of a step itself, and a second signal would end the workers at once.
trap '[[ -n ${SLURM_STEP_ID:-} ]] || kill -TERM "${workers[@]}" 2>/dev/null || true' INT TERM HUP
start() {
    (
        # The workers stop after their update, and need the others for it.
        [[ $1 == worker ]] || trap '' INT TERM HUP
        DMLC_ROLE=$1 exec "${@:2}"
    ) </dev/null &
    running+=($!)
}
[[ $machine != 0 ]] || start scheduler "$@"
start server "$@"
for ((index = 0; index < count; index++)); do
    start worker "$@"
    workers+=($!)
done

status=0 deadline=""
while ((${#running[@]})) && [[ -z $deadline || $SECONDS -lt $deadline ]]; do
    sleep 0.2 &
    wait $! || true
    for index in "${!running[@]}"; do
        kill -0 "${running[index]}" 2>/dev/null && continue
        ended=0
        wait "${running[index]}" || ended=$?
        unset "running[index]"
        [[ $status != 0 || $ended == 0 ]] || status=$ended
        # The other workers may end by themselves too.
        [[ $status == 0 ]] || deadline=${deadline:-$((SECONDS + 5))}
    done
done
exit "$status"
