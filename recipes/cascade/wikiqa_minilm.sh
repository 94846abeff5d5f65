#!/usr/bin/env bash
# WikiQA from MiniLM: the monolithic ranker and a cascade with exits at layers 2, 4 and 6
# (Soldaini and Moschitti 2020, Table 2, at the size of a 6-layer encoder).
#
#   recipes/cascade/wikiqa_minilm.sh           40 minutes on two cores; needs data/wikiqa/
#   SMOKE=1 recipes/cascade/wikiqa_minilm.sh   a minute on the built-in corpus, to see that it runs
#
# data/wikiqa/ is written by: python data_scripts/wikiqa.py --out data/wikiqa
# Seed 0. Hyper-parameters were chosen on dev; logs/README.md lists the trials. Figures of the last run:
# results/wikiqa_minilm.txt. A run that was stopped goes on when the recipe is started again. ENGINE=auto trains by
# oneDNN, in half the time; its dropout draws others than MXNet's, so the figures then differ as those of another seed do.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${SMOKE:-0}" != 1 ]; then RUNS=${RUNS:-runs}; fi
. recipes/settings.sh
out=$RUNS/wikiqa_minilm

if [ "${SMOKE:-0}" = 1 ]; then
  data=wqa/data/builtin
  short=(--max-updates 3 --warmup-updates 1 --tokens-per-batch 500) ENGINE=${ENGINE:-auto}
else
  data=${DATA:-data/wikiqa} short=()
fi
mkdir -p "$out" "$LOGS"

train() {  # NAME SYSTEM OPTIONS...
  "$wqa" train "$2" --train "$data/train.jsonl" --dev "$data/dev.jsonl" --out "$out/$1" --resume \
    --train-filter no-all-negative --warmup-updates 100 --seed 0 --engine "${ENGINE:-mxnet}" "${@:3}" \
    "${short[@]+"${short[@]}"}"
  cp "$out/$1/metrics.jsonl" "$LOGS/wikiqa_minilm_$1.metrics.jsonl"
  "$python" recipes/trainings.py "$LOGS"
}
train pairwise pairwise --encoder minilm --epochs 6 --learning-rate 3e-5
# The cascade starts from the monolithic ranker's encoder, with new heads; the paper's starts from a transferred one (5.2).
train cascade cascade --init "$out/pairwise" --exits 2,4,6 --epochs 6 --learning-rate 5e-5

evaluate() {  # NAME OPTIONS...
  "$wqa" evaluate "$out/$1" --data "$data/test.jsonl" --filter no-all-negative --metrics map,mrr,p@1,ndcg@10 "${@:2}"
}
{
  echo "# wqa $(sed -n 's/.*"command": "\(.*\)".*/\1/p' "$out/pairwise/config.json" | cut -d' ' -f2-)"
  evaluate pairwise
  echo "# wqa $(sed -n 's/.*"command": "\(.*\)".*/\1/p' "$out/cascade/config.json" | cut -d' ' -f2-)"
  evaluate cascade --per-exit --drop-ratio 0 --drop-ratio 0.3 --drop-ratio 0.5
} | tee "$RESULTS/wikiqa_minilm.txt"
