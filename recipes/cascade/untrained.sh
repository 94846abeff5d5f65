#!/usr/bin/env bash
# Rankers without training: the similarity of tokens and of means by MiniLM, BM25, and word overlap. The files of TREC-QA list
# correct candidates first, so that the original order counts on WikiQA alone. SIZE=base adds all-mpnet-base-v2 and takes the test
# questions of both corpora, into $RESULTS/base_untrained.tsv.
if [ "${SMOKE:-0}" != 1 ]; then
  export ENCODER=${ENCODER:-minilm} RUNS=${RUNS:-runs/cascade_minilm} CORPORA=${CORPORA:-wikiqa trecqa}
  [ "${SIZE:-minilm}" = base ] || export TRECQA_TEST=${DATA:-data}/trecqa/dev-clean.jsonl
fi
. "$(dirname "$0")/../settings.sh"
table=$RESULTS/untrained.tsv encoders=$ENCODER
if [ "${SIZE:-minilm}" = base ]; then table=$RESULTS/base_untrained.tsv encoders="$ENCODER ${BASE:-encoders/mpnet}"; fi

mkdir -p "$RUNS/untrained"
for corpus in $CORPORA; do
  names=()
  for encoder in $encoders; do names+=("maxsim:$encoder" "cosine:$encoder"); done
  names+=(bm25)
  if [ "$corpus" != trecqa ]; then names+=(wo+rr rr); fi
  for name in "${names[@]}"; do
    row=$name
    if [[ $name == *:* ]]; then row=${name%%:*}:${name##*[:/]}; fi
    figures=$RUNS/untrained/${SIZE:-minilm}_${row/:/_}_$corpus.json
    evaluate "$figures" "$corpus" "$name" --precision "$PRECISION"
    collect "$table" "$row" 0 "$corpus" "$figures"
  done
done
cat "$table"
