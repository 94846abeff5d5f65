# Settings and functions of the recipes of scale, which source this file; those of recipes/settings.sh hold as well.
paper=scale
if [ "${SMOKE:-0}" = 1 ]; then
  SPLITS=${SPLITS:-dev test} SHARDS=${SHARDS:-3} CLUSTER=${CLUSTER-} THREADS=1 PARTITION_TOKENS=2000
else
  RUNS=${RUNS:-runs/cascade_paper}
fi
. "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"

RUN=${RUN:-$RUNS/cascade/transfer}      # the ranker: whatever `wqa rank` takes
SPLITS=${SPLITS:-train dev test}        # files of ASNQ
SHARDS=${SHARDS:-${SLURM_ARRAY_TASK_COUNT:-1}}              # shares of the partitions
CLUSTER=${CLUSTER-local}                # local, local:N, ray://HOST[:PORT]; empty for this process
THREADS=${THREADS:-${SLURM_CPUS_PER_TASK:-1}}               # of each worker, the same everywhere: they decide the last bits
PARTITION_TOKENS=${PARTITION_TOKENS:-262144}
FORMAT=${FORMAT:-trec}                  # trec, jsonl, or logits for `wqa train --teachers`
mkdir -p "$RUNS/scale"

score() {  # SPLIT NAME JSON OPTIONS...: each shard has a file of figures, JSON, of its own
  local split=$1 name=$2 json=$3; shift 3
  "$wqa" score "$RUN" --data "$ASNQ/$split.jsonl" --out "$RUNS/scale/$name/$split" --format "$FORMAT" --ctx "$device" \
    --precision "$PRECISION" --threads "$THREADS" --partition-tokens "$PARTITION_TOKENS" \
    --json "$RUNS/scale/$json.$split.json" "$@"
}
