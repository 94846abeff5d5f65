#!/usr/bin/env bash
#SBATCH --job-name=wqa-asnq
#SBATCH --array=1-64
#SBATCH --cpus-per-task=4
#SBATCH --time=08:00:00
#SBATCH --requeue
# Scores of all 23.7 million pairs of ASNQ by one ranker, as an array of Slurm's jobs, which may be requeued, repeated, and run in
# any order; whichever ends last merges the scores.
#   RUN=runs/cascade_paper/cascade/transfer sbatch recipes/scale/asnq_slurm.sh
#   SHARDS=3 recipes/scale/asnq_slurm.sh      without Slurm: all shards here, one after another
# SHARDS from the environment holds where only some tasks of an array are submitted again: SHARDS=64 sbatch --array=3,9 ... In a
# Kubernetes job with completionMode Indexed, SHARDS is its number of completions.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/../..}"
given=${SHARDS:-}
. recipes/scale/settings.bash

shards=$(seq 1 "$SHARDS")
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
  shards=$SLURM_ARRAY_TASK_ID
  if [ -z "$given" ]; then shards=$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN + 1)); fi
elif [ -n "${JOB_COMPLETION_INDEX:-}" ]; then
  shards=$((JOB_COMPLETION_INDEX + 1))
fi
for split in $SPLITS; do
  for shard in $shards; do
    score "$split" slurm "slurm.$shard" --shard "$shard/$SHARDS"
  done
done
