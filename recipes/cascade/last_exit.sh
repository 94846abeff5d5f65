#!/usr/bin/env bash
# Why the cascade's last exit ranks worse than a monolithic ranker of the same depth, after a transfer on half of SQuAD 2.0's
# development set: the variants below train the cascade in different ways, each transferred and adapted with several seeds. The
# figures are on WikiQA's dev, which also chooses the epoch, and on TREC-QA's clean dev, which chooses nothing: the last epoch is
# kept there. recipes/cascade/last_exit.py compares them question by question.
#
#   DATA=data recipes/cascade/last_exit.sh                 a queue of hours that goes on where it stopped
#   DATA=data VARIANTS="mono all" SPLIT=test recipes/cascade/last_exit.sh    the same on the test splits, once, at the end
#   SMOKE=1 recipes/cascade/last_exit.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
split=${SPLIT:-dev}
case $split in dev | test) ;; *) echo "error: SPLIT: $split; expected dev or test" >&2; exit 2 ;; esac
if [ "${SMOKE:-0}" = 1 ]; then
  layer=3 clean='' SEEDS=${SEEDS:-0} VARIANTS=${VARIANTS:-mono all_taught}
else
  data=${DATA:-data} layer=6 clean=-clean SEEDS=${SEEDS:-0 1 2}
  VARIANTS=${VARIANTS:-mono mono_transfer uniform all all_taught head peak depth transfer longer all_taught_longer}
  ENCODER=minilm RUNS=${RUNS:-runs/last_exit} EXITS=2,4,6
  ASNQ_TRAIN=$data/squad/test.jsonl WIKIQA=$data/wikiqa TRECQA=$data/trecqa
  TRECQA_TRAIN=$data/trecqa/train-clean.jsonl
  ASNQ_DEV='' TRECQA_DEV='' PATIENCE=0 WARMUP=100 UPDATE_TOKENS=0 PRECISION=${PRECISION:-bfloat16}
fi
. recipes/settings.sh
test_of() { case $1 in wikiqa) echo "$WIKIQA/$split.jsonl" ;; trecqa) echo "$TRECQA/$split$clean.jsonl" ;; esac; }
corpora="wikiqa trecqa"
if [ "$split" = test ] && [ ! -e "$(test_of trecqa)" ]; then
  echo "note: $(test_of trecqa) is not at hand; TREC-QA is left out" >&2
  corpora=wikiqa
fi

variant() {  # NAME: sets the system, its options, the peak, and the epochs of the transfer and of the adaptation
  system=cascade own=(--exits "$EXITS") rate=5e-5 transfer_epochs=2 epochs=4
  case $1 in
    mono) system=pairwise own=(--exits "$layer") rate=3e-5 ;;        # the twin
    mono_transfer) system=pairwise own=(--exits "$layer") rate=3e-5 transfer_epochs=6 ;;  # ... with the transfer of "transfer"
    uniform) ;;                                                      # the paper's rule
    peak) rate=3e-5 ;;                                               # ... with the twin's peak
    head) own=(--exits "$layer") rate=3e-5 ;;                        # the cascade's head alone, after the last layer
    depth) own+=(--trained-exits depth) ;;                           # exits drawn by depth
    all) own+=(--trained-exits all) rate=3e-5 ;;                     # the losses of all exits in each update
    all_taught) own+=(--trained-exits all --distillation 0.5) rate=3e-5 ;;  # ... and the last exit teaches the others
    transfer) transfer_epochs=6 ;;                                   # as many updates an exit in the transfer
    longer) transfer_epochs=6 epochs=12 rate=3e-5 ;;                 # ... and in the adaptation, with the twin's peak
    all_taught_longer)                                               # the taught exits, two to three times as long
      own+=(--trained-exits all --distillation 0.5) rate=3e-5 transfer_epochs=6 epochs=8 ;;
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
    for corpus in $corpora; do
      run=last_exit/${name}_${corpus}_seed$seed
      train "$run" "$system" "$corpus" --init "$RUNS/$start" "${own[@]}" --seed "$seed" --learning-rate "$rate" \
        --epochs "$epochs"
      drops=()
      [ "$system" = pairwise ] || drops=(--drop-ratio 0 --drop-ratio 0.3)
      evaluate "$RUNS/$run/$split.json" "$corpus" "$RUNS/$run" ${drops[@]+"${drops[@]}"}
    done
  done
done

"$python" recipes/cascade/last_exit.py "$RUNS/last_exit" --split "$split" --corpora $corpora --variants $VARIANTS \
  --seeds $SEEDS |
  tee "$RESULTS/last_exit_$split.txt"
keep_logs "$RUNS/last_exit" last_exit_
