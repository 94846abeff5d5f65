#!/usr/bin/env bash
# Quality over time: WikiQA's MAP over the median milliseconds of a question, ranked one by one in int8, of what minilm_train.sh and
# base_train.sh (SIZE=base) trained without a transfer. Each size adds its rows to results/quality_time.tsv; time both on one machine.
. "$(dirname "$0")/minilm.bash"
. "$(dirname "$0")/../settings.sh"
needs plots matplotlib
[ "${SMOKE:-0}" != 1 ] || recipes/cascade/minilm_train.sh
table=$RESULTS/quality_time.tsv encoder=$(basename "$ENCODER") SUFFIX=_untransferred

timed() {  # ROW "RATIO ..." RUN...: MAP over the seeds and milliseconds of the first of them
  local row=$1 ratios=($2) files=() run ratio; shift 2
  for run in "$@"; do
    files+=("$run/int8.json")
    once "$run/int8.safetensors" "$run/model.params" -- "$wqa" quantize "$run" --data "$(dev_of wikiqa)"
    evaluate "${files[-1]}" wikiqa "$run" --precision int8 "${ratios[@]/#/--drop-ratio=}"
  done
  [ $# = 0 ] || "$wqa" bench "$1" --data "$(test_of wikiqa)" --latency 100 --precision int8 "${ratios[@]/#/--drop-ratio=}" \
    --json "$1/times.json"
  for ratio in ${1:+"${ratios[@]}"}; do
    "$python" recipes/rows.py "$table" wikiqa map,seeds,p50_ms --row "$row" "${files[@]}" --beside "$1/times.json" --label "$ratio"
  done
}

for depth in $lower $full; do
  timed "$encoder mean head, $depth layers" 0 $(SUFFIX=_mean_${depth}_untransferred trained cascade_run wikiqa)
done
timed "$encoder cascade" "0 0.3 0.4 0.5" $(trained cascade_run wikiqa)
"$python" recipes/pictures.py times "$table" "$RESULTS/quality_time.png"
