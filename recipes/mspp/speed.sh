#!/usr/bin/env bash
# Cost of a joint model (Di Liello et al. 2022, section 4.3 and appendix C.3) at RoBERTa-base's size with random weights. First
# the five candidates of a question at once beside a pass for each: segments of 64 tokens, all full, and texts of WikiQA's
# lengths. In theory the ratio is (k + 1)^2 / 4k = 1.8 for attention and (k + 1) / 2k = 0.6 for what is linear in the length; the
# paper measured 1.14. Then re-ranking: the joint model on the first five behind the pairwise model on 30, which may add 15 %.
#   PRECISIONS="float32 bfloat16" recipes/mspp/speed.sh
paper=mspp
. "$(dirname "$0")/../settings.sh"
SHAPE=${SHAPE:-roberta_12_768_12} K=${K:-5} CANDIDATES=${CANDIDATES:-30} ROUNDS=${ROUNDS:-5} QUESTIONS=${QUESTIONS:-4}
LENGTH=${LENGTH:-64} PRECISIONS=${PRECISIONS:-float32}
TEXT_SPAN="20-$LENGTH" QUESTION_SPAN=8-16  # as WikiQA's
if [ "${SMOKE:-0}" = 1 ]; then
  SHAPE=bert_6_384_12 K=2 CANDIDATES=3 ROUNDS=1 QUESTIONS=1 LENGTH=8 TEXT_SPAN=4-8 QUESTION_SPAN=4-8
fi

beside() {  # QUESTION-TOKENS TOKENS
  echo "# joint beside pairwise: $K candidates of $2 tokens, a question of $1"
  "$python" recipes/bench/random_weights.py "$SHAPE" --system mspp --k "$K" --segment-length "$LENGTH" --beside "$SHAPE" --candidates "$K" \
    --question-tokens "$1" --tokens "$2" --rounds "$ROUNDS" --precision "$precision"
  echo
}
for precision in $PRECISIONS; do
  {
    beside "$LENGTH" "$LENGTH"
    if [ "${SMOKE:-0}" != 1 ]; then beside "$QUESTION_SPAN" "$TEXT_SPAN"; fi
    echo "# the joint model on the first $K behind the pairwise model on $CANDIDATES"
    "$python" recipes/mspp/speed.py "$SHAPE" --keep "$K" --candidates "$CANDIDATES" --questions "$QUESTIONS" \
      --rounds "$ROUNDS" --segment-length "$LENGTH" --precision "$precision" --question-tokens ${QUESTION_SPAN/-/ } \
      --tokens ${TEXT_SPAN/-/ }
  } | tee "$RESULTS/speed_$precision.txt"
done
