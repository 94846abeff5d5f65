#!/usr/bin/env bash
# Table 5 (Matsubara et al. 2022, section 5.5): the time of 128 pairs of 128 tokens, with random weights. The paper times a V100;
# compare ratios.
#   LARGE= PRECISIONS="float32 bfloat16 int8" recipes/mhs/table5.sh      without the large encoders, which take most of the time
paper=mhs
. "$(dirname "$0")/../settings.sh"
BASE=${BASE:-albert_12_768_12 roberta_12_768_12 electra_12_768_12} STUDENT=${STUDENT:-electra_12_768_12}
LARGE=${LARGE-albert_12_4096_64 roberta_24_1024_16 electra_24_1024_16}
CANDIDATES=${CANDIDATES:-128} LENGTH=${LENGTH:-128} ROUNDS=${ROUNDS:-5} PRECISIONS=${PRECISIONS:-float32}
if [ "${SMOKE:-0}" = 1 ]; then BASE=bert_6_384_12 STUDENT=bert_6_384_12 LARGE='' CANDIDATES=2 LENGTH=8 ROUNDS=1; fi

beside=()
for shape in $BASE $LARGE; do beside+=(--beside "$shape"); done
if [ "$BASE" != "$STUDENT" ]; then beside+=(--beside "${BASE// /,}"); fi  # the ensemble of rows 10 and 11 of Table 2
beside+=(--beside "$STUDENT,$STUDENT,$STUDENT")                           # that of row 12
for precision in $PRECISIONS; do
  keep_output "$RESULTS/table5_$precision.txt" "$python" recipes/bench/random_weights.py "$STUDENT" --system mhs --heads 3 \
    --head-layers 1 "${beside[@]}" --candidates "$CANDIDATES" --tokens "$LENGTH" --rounds "$ROUNDS" --precision "$precision"
done
