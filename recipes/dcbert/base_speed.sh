#!/usr/bin/env bash
# Speed at BERT-base's size with random weights (Zhang et al. 2020, section 3; Table 1 and 3, "Retriever Speedup"): DC-BERT and
# its linear variant with and without a cache, in turn with the re-ranker of the concatenation, one question at a time.
#   PRECISIONS="float32 bfloat16 int8" recipes/dcbert/base_speed.sh
paper=dcbert
. "$(dirname "$0")/../settings.sh"
SHAPE=${SHAPE:-bert_12_768_12} DOCUMENTS=${DOCUMENTS:-80} LENGTH=${LENGTH:-150} ROUNDS=${ROUNDS:-3} PRECISIONS=${PRECISIONS:-float32}
if [ "${SMOKE:-0}" = 1 ]; then SHAPE=bert_6_384_12 DOCUMENTS=2 LENGTH=8 ROUNDS=1; fi

for precision in $PRECISIONS; do
  for interaction in transformer linear; do
    name=base_speed_${interaction}_$precision
    keep_output "$RESULTS/${name/_transformer/}.txt" "$python" recipes/bench/random_weights.py "$SHAPE" --system dcbert \
      --interaction "$interaction" --beside "$SHAPE" --candidates "$DOCUMENTS" --tokens "$LENGTH" --rounds "$ROUNDS" \
      --precision "$precision"
  done
done
