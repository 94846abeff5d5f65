#!/usr/bin/env bash
# Cost of a joint model (Di Liello et al. 2022, section 4.3 and appendix C.3) at RoBERTa-base's size with random weights: the five
# candidates of a question at once beside a pass for each, of segments of 64 tokens, all full, and of texts of WikiQA's lengths. In
# theory the ratio is (k + 1)^2 / 4k = 1.8 for attention and (k + 1) / 2k = 0.6 for what is linear in the length; the paper
# measured 1.14.
#   PRECISIONS="float32 bfloat16" recipes/mspp/speed.sh
paper=mspp
. "$(dirname "$0")/../settings.sh"
SHAPE=${SHAPE:-roberta_12_768_12} K=${K:-5} ROUNDS=${ROUNDS:-5} LENGTH=${LENGTH:-64} PRECISIONS=${PRECISIONS:-float32}
lengths=("$LENGTH $LENGTH" "8-16 20-$LENGTH")  # of a question and of a candidate
if [ "${SMOKE:-0}" = 1 ]; then SHAPE=bert_6_384_12 K=2 ROUNDS=1 LENGTH=8 lengths=("8 8"); fi

speeds() {  # PRECISION
  for length in "${lengths[@]}"; do
    echo "# joint beside pairwise: $K candidates of ${length#* } tokens, a question of ${length% *}"
    "$python" recipes/bench/random_weights.py "$SHAPE" --system mspp --k "$K" --segment-length "$LENGTH" --beside "$SHAPE" --candidates "$K" \
      --question-tokens "${length% *}" --tokens "${length#* }" --rounds "$ROUNDS" --precision "$1"
    echo
  done
}
for precision in $PRECISIONS; do keep_output "$RESULTS/speed_$precision.txt" speeds "$precision"; done
