#!/usr/bin/env bash
# Tables 2 and 3 in small, the figures: evaluates on WikiQA's test what recipes/mhs/minilm_train.sh trained, under both filters
# (results/minilm_wikiqa.tsv, minilm_wikiqa_all.tsv), holds the paper's claims to paired tests (minilm_claims.txt), times the
# rankers in turn and counts their parameters (minilm_cost.txt), and counts where heads and teachers agree (minilm_agreement/).
#
#   DATA=data recipes/mhs/minilm_tables.sh
#   SMOKE=1 recipes/mhs/minilm_tables.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. recipes/mhs/minilm.bash
needs plots matplotlib
if [ "${SMOKE:-0}" = 1 ]; then recipes/mhs/minilm_train.sh; fi
table=$RESULTS/minilm_wikiqa.tsv
alone=() cascade=() kd=() kd_sum=() kd_rr=() mhs=()
for seed in $SEEDS; do
  alone+=("$RUNS/mhs/minilm_alone/seed_$seed")
  cascade+=("$RUNS/mhs/minilm_cascade/seed_$seed")
done
for name in kd kd_sum kd_rr mhs; do
  declare -n runs=$name
  mapfile -t runs < <(student_runs "minilm_$name" wikiqa)
done
teachers=("$RUNS"/mhs/minilm_teacher_{1,2,3}) ensemble=$RUNS/mhs/minilm_ensemble_wikiqa.json

for number in 1 2 3; do row "$table" "teacher $number" wikiqa "${teachers[number - 1]}"; done
row "$table" "ensemble of the teachers" wikiqa "$ensemble"
row "$table" "student, fine-tuned alone" wikiqa "${alone[@]}"
row "$table" "student of teacher 1" wikiqa "${kd[@]}"
row "$table" "student, KD_Sum" wikiqa "${kd_sum[@]}"
row "$table" "student, KD_RR" wikiqa "${kd_rr[@]}"
row "$table" "MHS B${BODY}_3H1" wikiqa "${mhs[@]}"
cascade_files=()
for run in "${cascade[@]}"; do
  evaluate "$run/test.json" wikiqa "$run" --per-exit --drop-ratio 0 --drop-ratio 0.3 --drop-ratio 0.5
  cascade_files+=("$run/test.json")
done
for label in "exit 1" 0 0.3 0.5; do
  name="MHS B${BODY}_3H1 with exit 1"
  if [ "$label" = "exit 1" ]; then name="$name, that exit alone"; fi
  "$python" recipes/collect.py "$table" "$name" "$label" wikiqa "${cascade_files[@]}"
done
cat "$table"

# The paper's claims. A difference is the second run's less the first's. Names are relative to the folder of the runs.
base=$RUNS/mhs
data=$(realpath "$(test_of wikiqa)") out=$(realpath "$RESULTS")
compare() {  # TITLE FILE FILE: figures that `evaluate` wrote
  echo "# $1"
  (cd "$base" && "$wqa" compare --run "${2#"$base/"}.0.trec" --run "${3#"$base/"}.0.trec" --qrels "${2#"$base/"}.qrels" --filter all \
    --metrics map,p@1)
  echo
}
for index in "${!mhs[@]}"; do
  compare "(a) fine-tuned alone, student of teacher 1, seed $index" "${alone[index]}/test.json" "${kd[index]}/test.json"
  compare "(b) student of teacher 1, MHS, seed $index" "${kd[index]}/test.json" "${mhs[index]}/test.json"
  compare "(b) KD_Sum, MHS, seed $index" "${kd_sum[index]}/test.json" "${mhs[index]}/test.json"
  compare "(c) ensemble of the teachers, MHS, seed $index" "$ensemble.test.json" "${mhs[index]}/test.json"
done > "$RESULTS/minilm_claims.txt"
cat "$RESULTS/minilm_claims.txt"

ROUNDS=${ROUNDS:-3} QUESTIONS=${QUESTIONS:-30} "$python" recipes/mhs/costs.py "$(dev_of wikiqa)" "${teachers[0]}" "$ensemble" "${kd[0]}" "${mhs[0]}" \
  "${cascade[0]}" "${cascade[0]}@0.3" |
  tee "$RESULTS/minilm_cost.txt"
(cd "$base" && "$wqa" agreement "${mhs[0]#"$base/"}" "${teachers[@]#"$base/"}" --data "$data" \
  --filter "$(filter_of wikiqa)" --out "$out/minilm_agreement")

# The grids, and the logs of the rankers in the tables; those of the other points of a grid stay with the runs.
for name in kd kd_sum kd_rr mhs; do
  cp "$base/minilm_${name}_wikiqa/grid.tsv" "$RESULTS/minilm_grid_$name.txt"
done
for run in "$base"/minilm_{transferred,start} "${teachers[@]}" "${alone[@]}" "${kd[@]}" "${kd_sum[@]}" "${kd_rr[@]}" "${mhs[@]}" \
    "${cascade[@]}"; do
  name=${run#"$base/"}
  keep_log "$run" "${name//\//_}"
done
