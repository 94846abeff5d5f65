#!/usr/bin/env bash
# Tables 3 and 4 (Matsubara et al. 2022), which the paper gives for IAS2, on WikiQA. Is it the heads or the teachers? A monolithic
# student without a teacher, with one, and with three by KD_Sum and KD_RR; the Multiple-Heads Student without, with one for all
# heads, and with one for each. And how many layers should a head have? b + h is the encoder's depth.
. "$(dirname "$0")/settings.bash"
table=$RESULTS/table3.tsv
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
  for layers in $CONFIGURATIONS; do
    name=mhs_heads_of_$layers
    if [ "$layers" = 1 ]; then name=mhs; else student "$name" "$STUDENT" "$corpus" mhs $(mhs_options "$layers" "$corpus" $LARGE); fi
    row "$RESULTS/table4.tsv" "MHS B$((DEPTH - layers))_${HEADS}H$layers" "$corpus" $(student_runs "$name" "$corpus")
  done
done
cat "$RESULTS"/table{3,4}.tsv
