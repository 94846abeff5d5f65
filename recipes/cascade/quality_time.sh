#!/usr/bin/env bash
# Quality over time: WikiQA's MAP over the median milliseconds of a question, ranked one by one in int8, of what minilm_train.sh and
# base_train.sh trained without a transfer: monolithic rankers of each depth, and the cascade at its drop ratios. Each size adds its
# rows to results/quality_time.tsv and draws the picture anew; a machine that times one size has to time both.
#   recipes/cascade/quality_time.sh; SIZE=base recipes/cascade/quality_time.sh
. "$(dirname "$0")/minilm.bash"
. "$(dirname "$0")/../settings.sh"
needs plots matplotlib
[ "${SMOKE:-0}" != 1 ] || recipes/cascade/minilm_train.sh
table=$RESULTS/quality_time.tsv encoder=$(basename "$ENCODER") SUFFIX=_untransferred

timed() {  # ROW RUN...: MAP over the seeds and milliseconds of the first of them, at each drop ratio that it was timed at
  local row=$1 files=() run ratio; shift
  [ $# != 0 ] || return 0
  for run in "$@"; do
    files+=("$run/int8.json")
    once "$run/int8.safetensors" "$run/model.params" -- "$wqa" quantize "$run" --data "$(dev_of wikiqa)"
    evaluate "${files[-1]}" wikiqa "$run" --precision int8 $ratios
  done
  once "$1/times.json" "$1/model.params" -- "$wqa" bench "$1" --data "$(test_of wikiqa)" --latency 100 --precision int8 $ratios \
    --json "$1/times.json"
  for ratio in ${ratios//--drop-ratio/}; do
    "$python" recipes/rows.py "$table" wikiqa map,seeds,p50_ms --row "$row" "${files[@]}" --beside "$1/times.json" --label "$ratio"
  done
}

for depth in $lower $others $full; do
  ratios="--drop-ratio 0" timed "$encoder monolithic, $depth layers" $(trained mono_run wikiqa "$depth")
done
ratios="--drop-ratio 0 --drop-ratio 0.3 --drop-ratio 0.4 --drop-ratio 0.5"
timed "$encoder cascade" $(trained cascade_run wikiqa)
cat "$table"
"$python" recipes/pictures.py times "$table" "$RESULTS/quality_time.png"
