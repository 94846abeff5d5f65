#!/usr/bin/env bash
# Tables 2 and 3 in small, the trainings, on WikiQA: students of all six layers of MiniLM, and three teachers that dev prefers
# among those that one encoder allows (recipes/mhs/logs/README.md), after a transfer (recipes/transfer_corpus.sh). Teachers 1 and 3
# are monolithic, with seeds 0 and 2, and teacher 2 is a cascade. Students start from the first one's transfer; with LAYERS=4 they
# have four layers and start from a transferred ranker of four. ALPHAS and TAUS are a grid; dev chooses with the first seed.
#   DATA=data recipes/mhs/minilm_train.sh    five hours on one core; then minilm_tables.sh
#   DATA=data LAYERS=4 recipes/mhs/minilm_train.sh    two and a half hours more
. "$(dirname "$0")/minilm.bash"
needs tune optuna

[ "${SMOKE:-0}" = 1 ] || RUNS=$RUNS recipes/transfer_corpus.sh "$ASNQ_TRAIN"
prepare minilm asnq
options=(--learning-rate "$LEARNING_RATE")
train mhs/minilm_transferred pairwise asnq --encoder "$ONE_ENCODER" --seed 0 "${options[@]}" --epochs "$TRANSFER_EPOCHS"
teacher() { train "mhs/minilm_teacher_$1" pairwise wikiqa --init "$RUNS/mhs/minilm_transferred" --seed "$2" "${options[@]}" \
  --epochs "$ADAPT_EPOCHS"; }  # NUMBER SEED
teacher 1 0
cascade=(--exits "$TEACHER_EXITS" --trained-exits all --distillation 0.5 --seed 0)
train mhs/minilm_transferred_cascade cascade asnq --encoder "$ONE_ENCODER" "${cascade[@]}" "${options[@]}" \
  --epochs "$TRANSFER_EPOCHS"
train mhs/minilm_teacher_2 cascade wikiqa --init "$RUNS/mhs/minilm_transferred_cascade" "${cascade[@]}" "${options[@]}" \
  --epochs "$ADAPT_EPOCHS"
teacher 3 2
[ "$LAYERS" = "$FULL" ] || train "mhs/$(basename "$start")" pairwise asnq --encoder "$ONE_ENCODER" "${depth[@]}" --seed 0 \
  "${options[@]}" --epochs "$TRANSFER_EPOCHS"
for number in 1 2 3; do score "$RUNS/mhs/minilm_teacher_$number" wikiqa; done
ensemble minilm_ensemble wikiqa "$RUNS"/mhs/minilm_teacher_{1,2,3}

for seed in $SEEDS; do
  run=$(alone_run wikiqa "$seed")
  encoder=minilm corpus=wikiqa system=pairwise train_student "${run#"$RUNS"/}" "$seed" "${depth[@]}"
done
student "${students}_kd" minilm wikiqa pairwise "${depth[@]}" --teachers "$first"
student "${students}_kd_sum" minilm wikiqa pairwise "${depth[@]}" --teachers "$three" --teaching sum
student "${students}_kd_rr" minilm wikiqa pairwise "${depth[@]}" --teachers "$three" --teaching round-robin
student "${students}_mhs" minilm wikiqa mhs --body "$BODY" --heads 3 --head-layers 1 --teachers "$three"
