#!/usr/bin/env bash
# Start a training on several processes, on this machine or on several of them:
#
#   recipes/scale/launch.sh N COMMAND...
#   recipes/scale/launch.sh 2 wqa train cascade --kvstore dist_sync --train ... --out runs/cascade
#
# N workers run here, with one server that sums gradients. On the first machine a scheduler runs too.
# All of them are COMMAND with another DMLC_ROLE; MXNet decides by it what a process becomes.
#
# With several machines, run this same line on each, with the variables
#   MACHINES                number of machines; 1 by default
#   MACHINE                 number of this one, from 0; by default SLURM_NODEID (srun) or
#                           JOB_COMPLETION_INDEX (an indexed job of Kubernetes)
#   DMLC_PS_ROOT_URI        name or address of machine 0
#   DMLC_PS_ROOT_PORT       a port that is free there; 9091 by default
#   DMLC_INTERFACE          network interface, where a machine has several
#
# Where a process fails, all others are ended. The exit status is the greatest of all; 128 plus the
# number of a signal, where one ended a process or this script. OMP_NUM_THREADS is set to the
# processors that each worker gets, if it is not set.
set -euo pipefail
# Each process leads a group of its own, so that what it starts is ended with it, and so that an
# interrupt from the keyboard comes to this script alone, which hands it on once.
set -m

GRACE=${LAUNCH_GRACE:-5} # seconds in which workers end by themselves, once one has failed
ENDING=10                 # seconds between SIGTERM and SIGKILL

fail() {
    echo "launch.sh: $*" >&2
    exit 2
}

[[ $# -ge 2 && $1 =~ ^[1-9][0-9]{0,3}$ ]] || fail "usage: launch.sh N COMMAND..."
workers=$1
shift
machines=${MACHINES:-1}
[[ $machines =~ ^[1-9][0-9]{0,3}$ ]] || fail "MACHINES is '$machines', expected a number from 1"
machine=0
[[ $machines == 1 ]] || machine=${MACHINE:-${SLURM_NODEID:-${JOB_COMPLETION_INDEX:-}}}
[[ $machine =~ ^[0-9]{1,4}$ && $((10#$machine)) -lt $machines ]] ||
    fail "MACHINE is '$machine', expected a number from 0 to $((machines - 1))"

# A free port below those that the system gives out.
free_port() {
    local port
    for _ in {1..100}; do
        port=$((20000 + RANDOM % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    fail "no free port"
}

export DMLC_NUM_WORKER=$((workers * machines)) DMLC_NUM_SERVER=$machines
if [[ $machines == 1 ]]; then
    # Nothing listens on a network.
    export DMLC_PS_ROOT_URI=127.0.0.1 DMLC_NODE_HOST=127.0.0.1
    DMLC_PS_ROOT_PORT=$(free_port)
else
    [[ -n ${DMLC_PS_ROOT_URI:-} ]] || fail "DMLC_PS_ROOT_URI is not set, the address of machine 0"
    # The name of a pod is known some time after it has started.
    for _ in {1..60}; do
        address=$(getent ahostsv4 "$DMLC_PS_ROOT_URI" | head -n 1 | cut -d ' ' -f 1) || true
        [[ -z $address ]] || break
        sleep 5
    done
    [[ -n $address ]] || fail "DMLC_PS_ROOT_URI is '$DMLC_PS_ROOT_URI', which has no address"
    if [[ $((10#$machine)) == 0 && $address == 127.* && ! $DMLC_PS_ROOT_URI =~ ^(127\.|localhost$) ]]; then
        # Debian gives a machine's own name an address of the loopback. To the others it would be
        # themselves.
        if [[ -n ${DMLC_INTERFACE:-} ]]; then
            own=$(ip -4 -o address show dev "$DMLC_INTERFACE" | sed -n 's:.* inet \([0-9.]*\).*:\1:p;q') || true
        else
            own=$(hostname -I | tr ' ' '\n' | grep -m 1 '^[0-9.]*$') || true
        fi
        address=${own:-$address}
    fi
    # MXNet's scheduler listens at the address that others know it by, or, with this variable, at all.
    export DMLC_PS_ROOT_URI=$address DMLC_USE_KUBERNETES=1
    DMLC_PS_ROOT_PORT=${DMLC_PS_ROOT_PORT:-9091}
fi
export DMLC_PS_ROOT_PORT

if [[ -z ${OMP_NUM_THREADS:-} ]]; then
    threads=$(($(nproc) / workers))
    export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))
fi

# A process does not outlive this script, even where SIGKILL ends it. One that is tied to this
# script only after it has ended gets no signal, so it looks once whether its parent is another.
tie=()
if setpriv --help 2>/dev/null | grep -q -- --pdeathsig; then
    tie=(setpriv --pdeathsig KILL -- sh -c '[ "$PPID" = "$0" ] && exec "$@"' $$)
fi

pids=()      # all processes
roles=()     # their roles
statuses=()  # their exit statuses, empty while they run

start() {
    (
        # The workers stop after their update, and need the others for it.
        [[ $1 == worker ]] || trap '' INT TERM HUP
        DMLC_ROLE=$1 exec ${tie[@]+"${tie[@]}"} "${@:2}"
    ) </dev/null 2>&3 3>&- &
    pids+=($!)
    roles+=("$1")
    statuses+=("")
}

signal_running() { # SIGNAL ROLE...
    local index
    for index in "${!pids[@]}"; do
        if [[ -z ${statuses[index]} && " ${*:2} " == *" ${roles[index]} "* ]]; then
            kill -s "$1" -- "-${pids[index]}" 2>/dev/null || true
        fi
    done
}

# Counts what runs, in total and of the workers, and notes the status of what has ended.
running=0 running_workers=0 worst=0 failed="" ending=""
look() {
    local index status
    running=0 running_workers=0
    for index in "${!pids[@]}"; do
        [[ -z ${statuses[index]} ]] || continue
        if kill -0 "${pids[index]}" 2>/dev/null; then
            running=$((running + 1))
            [[ ${roles[index]} != worker ]] || running_workers=$((running_workers + 1))
            continue
        fi
        status=0
        wait "${pids[index]}" 2>/dev/null || status=$?
        statuses[index]=$status
        kill -KILL -- "-${pids[index]}" 2>/dev/null || true # what it has left behind
        [[ -z $ending ]] || continue # the script has ended it
        [[ $status -le $worst ]] || worst=$status
        if [[ $status != 0 && -z $failed ]]; then
            failed=${roles[index]}
            # A worker says itself why it has ended, unless a signal did it.
            if [[ $failed != worker || ($status -gt 128 && -z $received) ]]; then
                echo "launch.sh: a $failed ended with status $status" >&3
            fi
        fi
    done
}

# Bash may lose an interrupt that comes while it waits for a process in the foreground.
pause() {
    sleep 0.2 &
    wait $! || true
}

# Waits up to some seconds until none runs, of the workers or of all.
await() { # SECONDS workers|all
    local until=$((SECONDS + $1))
    while look; do
        [[ $running_workers != 0 || ($2 == all && $running != 0) ]] || return 0
        [[ $SECONDS -lt $until ]] || return 1
        pause
    done
}

end_all() {
    ending=yes
    signal_running TERM worker
    await $ENDING workers || true
    signal_running KILL worker server scheduler
    await $ENDING all || true
}

received=""
on_signal() {
    # A second signal does not wait.
    [[ -z $received ]] || signal_running KILL worker server scheduler
    received=$1
    # The workers write a checkpoint. Slurm signals all processes of a step itself, and a second
    # signal would end them at once.
    [[ -n ${SLURM_STEP_ID:-} ]] || signal_running "$1" worker
}
trap 'on_signal INT' INT
trap 'on_signal TERM' TERM
trap 'on_signal TERM' HUP
trap 'signal_running KILL worker server scheduler' EXIT

# Bash itself would report each process that a signal ends.
exec 3>&2 2>/dev/null
if [[ $((10#$machine)) == 0 ]]; then
    start scheduler "$@"
fi
start server "$@"
for ((index = 0; index < workers; index++)); do
    start worker "$@"
done

while look && [[ $running_workers != 0 ]]; do
    if [[ $failed == worker ]]; then
        # The others may have failed alike; else they wait for its gradients for ever.
        await "$GRACE" workers || true
        end_all
    elif [[ -n $failed ]]; then
        end_all
    fi
    pause
done
# The scheduler and the servers end after the last worker, unless it has failed.
[[ $worst != 0 ]] || await $ENDING all || true
end_all
exit "$worst"
