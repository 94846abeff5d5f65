#!/usr/bin/env bash
# Tables 2 and 3 in small, the figures of what recipes/mhs/minilm_train.sh trained on WikiQA's answered test questions
# (results/minilm_wikiqa.tsv): tests of the paper's claims over questions and seeds (minilm_claims.txt), the rankers' times in turn
# and their parameters (minilm_cost.txt), and where heads and teachers agree (minilm_agreement/). Rankings go to runs/. With
# LAYERS=4 the students have rows of their own, and their other files begin with minilm_4_layers.
. "$(dirname "$0")/minilm.bash"
[ "${SMOKE:-0}" != 1 ] || recipes/mhs/minilm_train.sh
table=$RESULTS/minilm_wikiqa.tsv
teachers=("$RUNS"/mhs/minilm_teacher_{1,2,3}) ensemble=$RUNS/mhs/minilm_ensemble_wikiqa.json
alone=($(trained alone_run wikiqa))
for name in kd kd_sum kd_rr mhs; do
  declare -n runs=$name
  [ -e "$RUNS/mhs/${students}_${name}_wikiqa/chosen.txt" ] || fail "no student $name; expected all of recipes/mhs/minilm_train.sh"
  runs=($(student_runs "${students}_$name" wikiqa))
done

for number in 1 2 3; do row "$table" "teacher $number" wikiqa "${teachers[number - 1]}"; done
row "$table" "ensemble of the teachers" wikiqa "$ensemble"
row "$table" "student, fine-tuned alone$note" wikiqa "${alone[@]}"
row "$table" "student of teacher 1$note" wikiqa "${kd[@]}"
row "$table" "student, KD_Sum$note" wikiqa "${kd_sum[@]}"
row "$table" "student, KD_RR$note" wikiqa "${kd_rr[@]}"
row "$table" "MHS B${BODY}_3H1" wikiqa "${mhs[@]}"
cat "$table"

# The paper's claims. A difference is the second system's less the first's.
trec=test.json.0.trec
keep_output "$RESULTS/${students}_claims.txt" "$python" recipes/claims.py "${alone[0]}/test.json.qrels" map,p@1 --system ensemble "$(json_of "$ensemble").0.trec" \
  --system "teacher 1" "${teachers[0]}/$trec" --system "teacher 2" "${teachers[1]}/$trec" --system "teacher 3" "${teachers[2]}/$trec" \
  --system alone "${alone[@]/%//$trec}" --system "student of teacher 1" "${kd[@]/%//$trec}" \
  --system KD_Sum "${kd_sum[@]/%//$trec}" --system KD_RR "${kd_rr[@]/%//$trec}" --system MHS "${mhs[@]/%//$trec}" \
  --pair "teacher 1" ensemble --pair alone "student of teacher 1" KD_Sum KD_RR MHS --pair "student of teacher 1" MHS \
  --pair KD_Sum MHS --pair KD_RR MHS --pair "teacher 1" MHS --pair "teacher 2" MHS --pair "teacher 3" MHS --pair ensemble MHS

ROUNDS=${ROUNDS:-3} QUESTIONS=${QUESTIONS:-30} keep_output "$RESULTS/${students}_cost.txt" "$python" recipes/mhs/costs.py \
  "$(dev_of wikiqa)" "${teachers[0]}" "$ensemble" "${kd[0]}" "${mhs[0]}"
data=$(realpath "$(test_of wikiqa)") out=$(realpath "$RESULTS") agreement=$(realpath recipes/mhs/agreement.py)
(cd "$RUNS/mhs" && "$python" "$agreement" "${mhs[0]#"$RUNS/mhs/"}" minilm_teacher_{1,2,3} --data "$data" --filter "$(filter_of wikiqa)" \
  --out "$out/${students}_agreement")

# The grids; the rankings and logs of the rankers in the tables. Logs of the other points of a grid stay with the runs.
for name in kd kd_sum kd_rr mhs; do
  cp "$RUNS/mhs/${students}_${name}_wikiqa/grid.tsv" "$RESULTS/${students}_grid_$name.txt"
done
cp "$ensemble" "$RESULTS/minilm_ensemble.txt"  # its weights, and their figures on dev
keep_run "$(json_of "$ensemble").0.trec" minilm_ensemble
for run in "${teachers[@]}" "${alone[@]}" "${kd[@]}" "${kd_sum[@]}" "${kd_rr[@]}" "${mhs[@]}"; do
  name=${run#"$RUNS/mhs/"}
  keep_run "$run/test.json.0.trec" "${name//\//_}"
  copy_log "$run" "${name//\//_}"
done
for name in minilm_transferred_cascade minilm_transferred "$(basename "$start")"; do copy_log "$RUNS/mhs/$name" "$name"; done
"$python" recipes/trainings.py "$LOGS"
