#!/usr/bin/env bash
# The tables of minilm_tables.sh with candidates that begin with the separator, which tells them apart: MiniLM is pre-trained by
# MSPP alone on WikiText, SelQA, WikiQA's training documents and half of SQuAD 2.0's development set. To tell what MSPP teaches from
# what more updates on these texts do, other joint models are pre-trained as long by masked tokens alone. logs/README.md has the
# trials that chose the settings.
#   DATA=data ARCHIVES=archives recipes/mspp/separator.sh   ARCHIVES has a folder or an archive of each corpus by its name
if [ "${SMOKE:-0}" != 1 ]; then
  RUNS=${RUNS:-runs/mspp_separator} PARAGRAPHS=${PARAGRAPHS:-${DATA:-data}/paragraphs} ARCHIVES=${ARCHIVES:-${DATA:-data}/archives}
  DRAWS=${DRAWS:-4} PRETRAIN_EVAL_EVERY=${PRETRAIN_EVAL_EVERY:-231} EPOCHS=${EPOCHS:-6} RATE=${RATE:-1e-4} PAIRWISE_RATE=${PAIRWISE_RATE:-5e-5}
fi
MARKS=separator MASK_RATE=0 JOINT_NOTE=
. "$(dirname "$0")/minilm.bash"
SYSTEMS="joint_ie mspp_ie masked_ie"
if [ "${SMOKE:-0}" != 1 ]; then
  DOCUMENTS=$PARAGRAPHS/train HELD_OUT=$PARAGRAPHS/dev
  rate_of() { if [ "$name" = pairwise ]; then echo "$PAIRWISE_RATE"; else echo "$RATE"; fi; }  # of what `fit` trains
  prepare_documents() {
    local entry corpus folder
    needs corpora sentencex
    mkdir -p "$DOCUMENTS" "$HELD_OUT"
    for entry in wikitext=18 selqa=60 wikiqa=0 squad=2; do  # documents that are held out
      corpus=${entry%=*} folder=$PARAGRAPHS/${entry%=*}
      [ -e "$folder/stats.json" ] || "$python" data_scripts/paragraphs.py "$corpus" --archive "$ARCHIVES/$corpus" --out "$folder" \
        --held-out "${entry#*=}"
      ln -sf "$(realpath "$folder/train.jsonl")" "$DOCUMENTS/$corpus.jsonl"
      if [ -e "$folder/dev.jsonl" ]; then ln -sf "$(realpath "$folder/dev.jsonl")" "$HELD_OUT/$corpus.jsonl"; fi
    done
  }
fi

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
