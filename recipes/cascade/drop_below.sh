#!/usr/bin/env bash
# Cascades that drop the candidates of too little relevance at each exit, as early exiting by confidence does (Xin et al. 2020,
# "Early Exiting BERT for Efficient Document Ranking"), beside drop ratios. The runs are those of recipes/cascade/minilm_train.sh;
# the temperature of each exit is fitted on dev, the figures in $RESULTS/drop_below.tsv are of test: a minute.
if [ "${SMOKE:-0}" = 1 ]; then
  export CORPORA=asnq  # the transferred cascade itself: it ranks some answers first, as calibration needs
else
  . "$(dirname "$0")/minilm.bash"
  export TRECQA_DEV=${DATA:-data}/trecqa/dev-clean.jsonl
fi
. "$(dirname "$0")/../settings.sh"
[ "${SMOKE:-0}" != 1 ] || recipes/cascade/transfer.sh
table=$RESULTS/drop_below.tsv ratios=(0 0.3 0.4 0.5) relevances=(0.001 0.003 0.01 0.03 0.1)

for corpus in ${CORPORA:-wikiqa trecqa}; do
  by_ratio=() by_relevance=()
  for run in $(trained cascade_run "$corpus"); do
    [ -e "$run/calibration.json" ] || "$wqa" calibrate "$run" --data "$(dev_of "$corpus")" --ctx "$device"
    evaluate "$run/ratios.json" "$corpus" "$run" "${ratios[@]/#/--drop-ratio=}"
    evaluate "$run/relevances.json" "$corpus" "$run" "${relevances[@]/#/--drop-below=}"
    by_ratio+=("$run/ratios.json") by_relevance+=("$run/relevances.json")
  done
  for ratio in "${ratios[@]}"; do collect "$table" "drop ratio" "$ratio" "$corpus" "${by_ratio[@]}"; done
  for least in "${relevances[@]}"; do collect "$table" relevance "below=$least" "$corpus" "${by_relevance[@]}"; done
done
cat "$table"
