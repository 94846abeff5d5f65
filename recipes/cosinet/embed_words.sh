#!/usr/bin/env bash
# Which table of word vectors: the authors', or a pretrained encoder's, distilled word by word. Makes both, trains Cosinet with a
# BiRNN on each with three seeds, and chooses by the mean MAP on WikiQA's dev. Writes $RESULTS/embed_words.tsv;
# $RUNS/cosinet/chosen_words.txt names the table that was chosen. No test question is scored.
#
#   KINDS=distilled recipes/cosinet/embed_words.sh   without Numberbatch's file; settings: recipes/cosinet/settings.bash
#   SMOKE=1 recipes/cosinet/embed_words.sh
if [ "${SMOKE:-0}" != 1 ]; then SEEDS=${SEEDS:-0 1 2}; else KINDS=distilled; fi
. "$(dirname "$0")/settings.bash"
table=${TABLE:-$RESULTS/embed_words.tsv} KINDS=${KINDS:-distilled numberbatch} MODEL=${MODEL:-cosinet_list_birnn}

for kind in $KINDS; do
  TABLE_KIND=$kind SUFFIX=_$kind files=()
  for seed in $SEEDS; do
    fit "$MODEL" wikiqa "$seed"
    run=$(run_of "$MODEL" wikiqa "$seed")
    if [ ! "$run/dev.json" -nt "$run/model.params" ]; then
      "$wqa" evaluate "$run" --data "$(dev_of wikiqa)" --filter "$(filter_of wikiqa)" --metrics "$METRICS" --ctx "$device" \
        --json "$run/dev.json"
    fi
    files+=("$run/dev.json")
  done
  "$python" recipes/rows.py "$table" wikiqa "$METRICS,seeds" --row "$kind" "${files[@]}"
done
cat "$table"
"$python" recipes/cosinet/choose.py "$table" wikiqa_map "$RUNS/cosinet/chosen_words.txt" $KINDS
