#!/usr/bin/env bash
# Tables 2 and 3 in small, the trainings, on WikiQA: students of MiniLM's first three layers, and three teachers of all six that
# are as unlike as one encoder allows: transferred from half of SQuAD 2.0's development set, with the classifier on the mean, and
# with that on the first position, each with a seed of its own. alpha and tau are chosen on dev with the first seed.
#
#   DATA=data recipes/mhs/minilm_train.sh    two hours on two cores; then minilm_tables.sh
#   SMOKE=1 recipes/mhs/minilm_train.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. recipes/mhs/minilm.bash
needs tune optuna

prepare minilm asnq
train mhs/minilm_transferred pairwise asnq --encoder "$ONE_ENCODER" --seed 0 --learning-rate "$LEARNING_RATE" --epochs 2
train mhs/minilm_teacher_1 pairwise wikiqa --init "$RUNS/mhs/minilm_transferred" --seed 0 --learning-rate "$LEARNING_RATE" \
  --epochs 4
train mhs/minilm_teacher_2 cascade wikiqa --encoder "$ONE_ENCODER" --exits "$FULL" --seed 1 --learning-rate "$LEARNING_RATE" \
  --epochs 4
train mhs/minilm_teacher_3 pairwise wikiqa --encoder "$ONE_ENCODER" --seed 2 --learning-rate "$LEARNING_RATE" --epochs 4
for number in 1 2 3; do score "$RUNS/mhs/minilm_teacher_$number" wikiqa; done
ensemble minilm_ensemble wikiqa "$RUNS"/mhs/minilm_teacher_{1,2,3}

# The students' first three layers have seen the transfer corpus, as a ranker of three layers.
train mhs/minilm_start pairwise asnq --encoder "$ONE_ENCODER" --exits "$DEPTH" --seed 0 --learning-rate "$LEARNING_RATE" --epochs 2
for seed in $SEEDS; do
  encoder=minilm corpus=wikiqa system=mhs train_student "mhs/minilm_alone/seed_$seed" "$seed" "${one_head[@]}"
done
student minilm_kd minilm wikiqa mhs "${one_head[@]}" --teachers "$first"
student minilm_kd_sum minilm wikiqa mhs "${one_head[@]}" --teachers "$three" --teaching sum
student minilm_kd_rr minilm wikiqa mhs "${one_head[@]}" --teachers "$three" --teaching round-robin
student minilm_mhs minilm wikiqa mhs "${three_heads[@]}" --teachers "$three"

# A cascade whose last exit is that student; no paper has it.
read -r alpha tau < "$RUNS/mhs/minilm_mhs_wikiqa/chosen.txt"
for seed in $SEEDS; do
  encoder=minilm corpus=wikiqa system=mhs train_student "mhs/minilm_cascade/seed_$seed" "$seed" "${three_heads[@]}" \
    --teachers "$three" --alpha "$alpha" --tau "$tau" $(cascade_options)
done
