#!/usr/bin/env bash
# Figure 2 (Zhang et al. 2020) on Natural Questions Open: (a) P@N over N of DC-BERT and its variants, $RESULTS/figure2a.tsv;
# (b) quality and speed over the number K of interaction layers, $RESULTS/figure2b.tsv. The
# paper draws these curves without numbers. Trains what is missing.
#
#   recipes/dcbert/figure2.sh        settings: recipes/dcbert/settings.bash
#   INTERACTIONS="1 2 3" recipes/dcbert/figure2.sh
#   SMOKE=1 recipes/dcbert/figure2.sh
if [ "${SMOKE:-0}" != 1 ]; then CORPORA=${CORPORA:-nq}; fi
. "$(dirname "$0")/settings.bash"
name=${NAME:-figure2}

columns=
for number in $CUTOFFS; do columns=$columns${columns:+,}p@$number; done
for corpus in $CORPORA; do
  row "$RESULTS/${name}a.tsv" DC-BERT-Linear "$corpus" linear "$columns"
  row "$RESULTS/${name}a.tsv" DC-BERT-LSTM "$corpus" lstm "$columns"
  row "$RESULTS/${name}a.tsv" DC-BERT "$corpus" dcbert_1 "$columns"
  rankers=(bert)
  for layers in $INTERACTIONS; do rankers+=("dcbert_$layers"); done
  for ranker in "${rankers[@]}"; do fit "$ranker" "$corpus"; done
  speed=$RUNS/dcbert/speed_${name}_$corpus.json
  timed "$speed" "$corpus" "${rankers[@]}"
  for layers in $INTERACTIONS; do
    row "$RESULTS/${name}b.tsv" "K = $layers" "$corpus" "dcbert_$layers" p@10,em,speedup "$speed"
  done
done
cat "$RESULTS/${name}a.tsv" "$RESULTS/${name}b.tsv"
