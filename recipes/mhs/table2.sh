#!/usr/bin/env bash
# Table 2 (Matsubara et al. 2022) on ASNQ and WikiQA: the teachers, fine-tuned and distilled base rankers, three ensembles,
# Hydra and the Multiple-Heads Student. WikiQA's test questions without an answer are left out, as Table 1 counts them.
. "$(dirname "$0")/settings.bash"
needs tune optuna
table=$RESULTS/table2.tsv
recipes/mhs/grid.sh

for corpus in $CORPORA; do
  large=($LARGE) base=($BASE) fine_tuned=() distilled=() from_student=() hydra=
  for index in 0 1 2; do
    row "$table" "$((index + 1)) ${large[index]}" "$corpus" "$(ranker_of "${large[index]}" "$corpus")"
  done
  for index in 0 1 2; do
    fine_tune "${base[index]}" "$corpus"
    fine_tuned+=("$(ranker_of "${base[index]}" "$corpus")")
    row "$table" "$((index + 4)) ${base[index]}" "$corpus" "${fine_tuned[index]}"
  done
  for index in 0 1 2; do
    distill "${base[index]}" "${large[index]}" "$corpus"
    distilled+=("$(SEEDS=$FIRST_SEED distilled_runs "${base[index]}" "${large[index]}" "$corpus")")
    row "$table" "$((index + 7)) ${base[index]} from ${large[index]}" "$corpus" \
      $(distilled_runs "${base[index]}" "${large[index]}" "$corpus")
    distill "$STUDENT" "${large[index]}" "$corpus"
    from_student+=("$(SEEDS=$FIRST_SEED distilled_runs "$STUDENT" "${large[index]}" "$corpus")")
  done
  ensemble ensemble_base "$corpus" "${fine_tuned[@]}"
  ensemble ensemble_distilled "$corpus" "${distilled[@]}"
  ensemble ensemble_student "$corpus" "${from_student[@]}"
  row "$table" "10 ensemble of rows 4-6" "$corpus" "$RUNS/mhs/ensemble_base_$corpus.json"
  row "$table" "11 ensemble of rows 7-9" "$corpus" "$RUNS/mhs/ensemble_distilled_$corpus.json"
  row "$table" "12 ensemble of three $STUDENT from rows 1-3" "$corpus" "$RUNS/mhs/ensemble_student_$corpus.json"
  # Hydra: three teachers of one architecture, which differ by their seeds (footnote 2).
  for seed in 0 1 2; do
    fine_tune "$STUDENT" "$corpus" "$seed"
    score "$(ranker_of "$STUDENT" "$corpus" "$seed")" "$corpus"
    hydra=$hydra${hydra:+,}$(logits_of "$(ranker_of "$STUDENT" "$corpus" "$seed")" "$corpus")
  done
  student hydra "$STUDENT" "$corpus" mhs --body "$BODY" --heads "$HEADS" --head-layers 1 --teachers "$hydra"
  row "$table" "13 Hydra" "$corpus" $(student_runs hydra "$corpus")
  row "$table" "14 MHS" "$corpus" $(student_runs mhs "$corpus")
done
cat "$table"
