#!/usr/bin/env bash
# Table 3 (Matsubara et al. 2022), which the paper gives for IAS2, on WikiQA: is it the heads or the teachers? A monolithic
# student without a teacher, with one, and with three by KD_Sum and KD_RR; the Multiple-Heads Student without, with one for all
# heads, and with one for each.
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/table3.tsv}
recipes/mhs/grid.sh

best=${LARGE##* }  # the teacher of section 5.2's students of one teacher: the student's own family
heads=(--body "$BODY" --heads "$HEADS" --head-layers 1)
for corpus in $CORPORA; do
  three=$(teachers "$corpus" $LARGE) one=$(teachers "$corpus" "$best")
  fine_tuned=() untaught=()
  for seed in $SEEDS; do
    fine_tune "$STUDENT" "$corpus" "$seed"
    fine_tuned+=("$(ranker_of "$STUDENT" "$corpus" "$seed")")
    untaught+=("$RUNS/mhs/mhs_untaught_$corpus/seed_$seed")
    encoder=$STUDENT system=mhs train_student "${untaught[-1]#"$RUNS"/}" "$seed" "${heads[@]}"
  done
  distill "$STUDENT" "$best" "$corpus"
  student kd_sum "$STUDENT" "$corpus" pairwise --teachers "$three" --teaching sum
  student kd_rr "$STUDENT" "$corpus" pairwise --teachers "$three" --teaching round-robin
  student mhs_one_teacher "$STUDENT" "$corpus" mhs "${heads[@]}" --teachers "$one,$one,$one"
  row "$table" "$STUDENT" "$corpus" "${fine_tuned[@]}"
  row "$table" "$STUDENT from $best" "$corpus" $(distilled_runs "$STUDENT" "$best" "$corpus")
  row "$table" "$STUDENT, KD_Sum" "$corpus" $(student_runs kd_sum "$corpus")
  row "$table" "$STUDENT, KD_RR" "$corpus" $(student_runs kd_rr "$corpus")
  row "$table" MHS "$corpus" "${untaught[@]}"
  row "$table" "MHS from $best" "$corpus" $(student_runs mhs_one_teacher "$corpus")
  row "$table" "MHS from three" "$corpus" $(student_runs mhs "$corpus")
done
cat "$table"
