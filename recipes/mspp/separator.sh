#!/usr/bin/env bash
# Table 1 in small with candidates that begin with the separator, which tells them apart (--marks separator): MiniLM is
# pre-trained by MSPP alone on WikiText, SelQA, WikiQA's training documents and half of SQuAD 2.0's development set, thirteen
# times the paragraphs of minilm_tables.sh, whose tables these are. To tell what MSPP teaches from what more updates on these texts
# do, other joint models were pre-trained as long by masked tokens alone (MSPP's loss has weight 0). The settings were chosen on
# dev by the trials in logs/README.md.
#   DATA=data ARCHIVES=archives recipes/mspp/separator.sh   ARCHIVES has a folder or an archive of each corpus by its name
if [ "${SMOKE:-0}" != 1 ]; then
  DATA=${DATA:-data}
  RUNS=${RUNS:-runs/mspp_separator} PARAGRAPHS=${PARAGRAPHS:-$DATA/paragraphs} ARCHIVES=${ARCHIVES:-$DATA/archives}
  DRAWS=${DRAWS:-4} PRETRAIN_EVAL_EVERY=${PRETRAIN_EVAL_EVERY:-231} EPOCHS=${EPOCHS:-6} RATE=${RATE:-1e-4} PAIRWISE_RATE=${PAIRWISE_RATE:-5e-5}
fi
MARKS=separator MASK_RATE=0
. "$(dirname "$0")/minilm.bash"
SYSTEMS="joint_ie mspp_ie masked_ie"
if [ "${SMOKE:-0}" != 1 ]; then
  DOCUMENTS=$PARAGRAPHS/train HELD_OUT=$PARAGRAPHS/dev
  rate_of() { if [ "$name" = pairwise ]; then echo "$PAIRWISE_RATE"; else echo "$RATE"; fi; }  # of what `fit` trains
  held_out_of() { case $1 in wikitext) echo 18 ;; selqa) echo 60 ;; squad) echo 2 ;; *) echo 0 ;; esac; }  # documents
  prepare_documents() {
    local corpus folder
    needs corpora sentencex
    mkdir -p "$DOCUMENTS" "$HELD_OUT"
    for corpus in wikitext selqa wikiqa squad; do
      folder=$PARAGRAPHS/$corpus
      if [ ! -e "$folder/stats.json" ]; then
        "$python" data_scripts/paragraphs.py "$corpus" --archive "$ARCHIVES/$corpus" --out "$folder" \
          --held-out "$(held_out_of "$corpus")"
      fi
      ln -sf "$(realpath "$folder/train.jsonl")" "$DOCUMENTS/$corpus.jsonl"
      if [ -e "$folder/dev.jsonl" ]; then ln -sf "$(realpath "$folder/dev.jsonl")" "$HELD_OUT/$corpus.jsonl"; fi
    done
  }
fi
title_of() { case $1 in
  joint_ie) echo "joint IE_k" ;;
  mspp_ie) echo "joint IE_k, MSPP" ;;
  masked_ie) echo "joint IE_k, masked tokens" ;;
  *) echo "$1" ;;
  esac; }

table_of "$RESULTS/separator_wikiqa.tsv" wikiqa "$RESULTS/separator_claims.txt"
for seed in $SEEDS; do
  for name in pairwise $SYSTEMS; do
    keep_run "$(run_of "$name" wikiqa "$seed")/test.json.0.trec" "separator_${name}_seed$seed"
  done
done

SYSTEMS="joint_ie mspp_ie"
rerank_tables "$RESULTS"/separator_rerank{,_full}.tsv wikiqa "$RESULTS/separator_rerank_claims.txt"
cat "$RESULTS"/separator_{wikiqa.tsv,claims.txt,rerank.tsv,rerank_full.tsv,rerank_claims.txt}
keep_logs "$RUNS/mspp" separator_
