# Settings of the recipes in small, which source this file.
if [ "${SMOKE:-0}" = 1 ]; then
  SEEDS=0
else
  RUNS=${RUNS:-runs/mspp_minilm} ENCODER=${ENCODER:-minilm} PARAGRAPHS=${PARAGRAPHS:-${DATA:-data}/squad_paragraphs}
  DOCUMENTS=$PARAGRAPHS/train.jsonl HELD_OUT=$PARAGRAPHS/dev.jsonl ARCHIVE=${ARCHIVE:-${DATA:-data}/dev-v2.0.json.gz}
  SEEDS=${SEEDS:-0 1 2} PRECISION=${PRECISION:-bfloat16} POSITIONS=${POSITIONS:-tokens}
  # Ours, not tuned: MiniLM and few updates need higher rates than RoBERTa-base and many.
  PRETRAIN_RATE=${PRETRAIN_RATE:-1e-4} DRAWS=${DRAWS:-18} PRETRAIN_EVAL_EVERY=${PRETRAIN_EVAL_EVERY:-18}
  PRETRAIN_TOKENS=${PRETRAIN_TOKENS:-3072}  # eight examples, as a row of logits for each masked token takes memory
  RATE=${RATE:-5e-5} EPOCHS=${EPOCHS:-3} PATIENCE=0
fi
CORPORA=wikiqa
. "$(dirname "${BASH_SOURCE[0]}")/settings.bash"
SYSTEMS="joint_ie joint_row_ie mspp_ie"  # joint_row_ie draws the question's row of token types from N(0, 1)
if [ "${SMOKE:-0}" != 1 ]; then
  filter_of() { echo no-all-negative; }  # the 873 training questions with an answer, 8,672 pairs
  warmup_of() { echo "--warmup-share 0.1"; }
  # A mini-batch is an update: 2,000 tokens of pairs, or thirteen joint inputs, 4,096 tokens if all were as long as the longest.
  update_tokens() { echo 0; }
  batch_tokens() { case $1 in pairwise) echo 2000 ;; *) echo 4096 ;; esac; }
  pretraining_schedule() {  # 32 examples an update; each of the draws of a paragraph once
    echo "--warmup-share 0.1 --epochs 1 --eval-every $PRETRAIN_EVAL_EVERY --tokens-per-update $((32 * LENGTH * (K + 1)))"
  }
  prepare_documents() {
    if [ -e "$PARAGRAPHS/stats.json" ]; then return; fi
    needs corpora sentencex
    "$python" data_scripts/paragraphs.py squad --archive "$ARCHIVE" --held-out 2 --out "$PARAGRAPHS"
  }
fi
title_of() { case $1 in
  joint_ie) echo "joint IE_k${JOINT_NOTE-, row of the question from N(0, 0.02)}" ;;
  joint_row_ie) echo "joint IE_k, row of the question from N(0, 1)" ;;
  mspp_ie) echo "joint IE_k, MSPP" ;;
  masked_ie) echo "joint IE_k, masked tokens" ;;
  *) echo "$1" ;;
  esac; }
