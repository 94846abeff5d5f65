#!/usr/bin/env bash
# Scores of all 23.7 million pairs of ASNQ by one ranker, on a Ray cluster. What is scored stays when a worker, a machine or
# this command dies; the same command goes on.
#   RUN=runs/cascade_paper/cascade/transfer CLUSTER=ray://head recipes/scale/asnq_ray.sh
. "$(dirname "$0")/settings.bash"

where=(--shard 1/1)
if [ -n "$CLUSTER" ]; then
  needs ray ray
  where=(--cluster "$CLUSTER")
fi
for split in $SPLITS; do
  score "$split" ray ray "${where[@]}"
done
