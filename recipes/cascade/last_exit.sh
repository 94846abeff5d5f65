#!/usr/bin/env bash
# Why the cascade's last exit ranks worse than a monolithic ranker of the same depth, at the scale of minilm_train.sh: each
# variant changes one thing in the cascade's training, and is transferred and adapted with several seeds. The figures are on
# WikiQA's dev and TREC-QA's clean dev; recipes/cascade/last_exit.py compares them question by question.
#
#   DATA=data recipes/cascade/last_exit.sh                 five hours on two cores; a queue that goes on where it stopped
#   DATA=data VARIANTS="mono all" SPLIT=test recipes/cascade/last_exit.sh    the same on WikiQA's test, once, at the end
#   SMOKE=1 recipes/cascade/last_exit.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${SMOKE:-0}" = 1 ]; then
  layer=3 SEEDS=${SEEDS:-0} VARIANTS=${VARIANTS:-mono all_taught}
else
  data=${DATA:-data} layer=6 SEEDS=${SEEDS:-0 1 2}
  VARIANTS=${VARIANTS:-mono uniform all all_taught head peak depth transfer longer}
  ENCODER=minilm RUNS=${RUNS:-runs/last_exit} EXITS=2,4,6
  ASNQ_TRAIN=$data/squad/test.jsonl WIKIQA=$data/wikiqa TRECQA=$data/trecqa
  TRECQA_TRAIN=$data/trecqa/train-clean.jsonl TRECQA_TEST=$data/trecqa/dev-clean.jsonl
  ASNQ_DEV='' TRECQA_DEV='' PATIENCE=0 WARMUP=100 UPDATE_TOKENS=0 PRECISION=${PRECISION:-bfloat16}
fi
. recipes/settings.sh
split=${SPLIT:-dev}
case $split in
  dev | test) wikiqa_test=$WIKIQA/$split.jsonl ;;
  *) echo "error: SPLIT: no split $split, expected dev or test" >&2; exit 2 ;;
esac
test_of() { case $1 in wikiqa) echo "$wikiqa_test" ;; trecqa) echo "$TRECQA_TEST" ;; esac; }

variant() {  # NAME: sets the system, its options, the peak, and the epochs of the transfer and of the adaptation
  system=cascade own=(--exits "$EXITS") rate=5e-5 transfer_epochs=2 epochs=4
  case $1 in
    mono) system=pairwise own=(--exits "$layer") rate=3e-5 ;;        # the twin
    uniform) ;;                                                      # the paper's rule
    peak) rate=3e-5 ;;                                               # ... with the twin's peak
    head) own=(--exits "$layer") rate=3e-5 ;;                        # the cascade's head alone, after the last layer
    depth) own+=(--trained-exits depth) ;;                           # exits drawn by depth
    all) own+=(--trained-exits all) rate=3e-5 ;;                     # the losses of all exits in each update
    all_taught) own+=(--trained-exits all --distillation 0.5) rate=3e-5 ;;  # ... and the last exit teaches the others
    transfer) transfer_epochs=6 ;;                                   # as many updates an exit in the transfer
    longer) transfer_epochs=6 epochs=12 rate=3e-5 ;;                 # ... and in the adaptation, with the twin's peak
    *) echo "error: VARIANTS: no variant $1" >&2; exit 2 ;;
  esac
}

for name in $VARIANTS; do variant "$name"; done  # a misspelt one is named before any training
tokenize_asnq
for name in $VARIANTS; do
  variant "$name"
  for seed in $SEEDS; do
    start=last_exit/${name}_transfer_seed$seed
    train "$start" "$system" asnq --encoder "$ENCODER" "${own[@]}" --seed "$seed" --learning-rate "$rate" \
      --epochs "$transfer_epochs"
    for corpus in wikiqa trecqa; do
      run=last_exit/${name}_${corpus}_seed$seed
      train "$run" "$system" "$corpus" --init "$RUNS/$start" "${own[@]}" --seed "$seed" --learning-rate "$rate" \
        --epochs "$epochs"
      drops=()
      [ "$system" = pairwise ] || drops=(--drop-ratio 0 --drop-ratio 0.3)
      evaluate "$RUNS/$run/$split.json" "$corpus" "$RUNS/$run" ${drops[@]+"${drops[@]}"}
    done
  done
done

"$python" recipes/cascade/last_exit.py "$RUNS/last_exit" --split "$split" --variants $VARIANTS --seeds $SEEDS |
  tee "$RESULTS/last_exit_$split.txt"
if [ "$RESULTS" != "$RUNS" ]; then
  for run in "$RUNS"/last_exit/*/; do
    sed "s|$RUNS/||g" "$run/metrics.jsonl" > "recipes/cascade/logs/last_exit_$(basename "$run").metrics.jsonl"
  done
fi
