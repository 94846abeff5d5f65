#!/usr/bin/env bash
# Tables 2 and 3 in small, the figures: evaluates what recipes/cascade/minilm_train.sh trained, into results/minilm_wikiqa.tsv
# and results/minilm_trecqa.tsv (TREC-QA: clean dev), holds the paper's claims to paired tests (results/minilm_claims.txt),
# and draws Figure 2 for WikiQA (results/minilm_figure2.*).
#
#   DATA=data recipes/cascade/minilm_tables.sh
#   SMOKE=1 recipes/cascade/minilm_tables.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
export TRAIN=0
if [ "${SMOKE:-0}" = 1 ]; then
  full=3 lower=1
else
  data=${DATA:-data} full=6 lower=4
  export RUNS=${RUNS:-runs/cascade_minilm} EXITS=2,4,6 DEPTHS="2 4 6"
  export WIKIQA=$data/wikiqa TRECQA=$data/trecqa TRECQA_TEST=$data/trecqa/dev-clean.jsonl
fi
. recipes/settings.sh
needs plots matplotlib
if [ "${SMOKE:-0}" = 1 ]; then recipes/cascade/minilm_train.sh; fi

for corpus in wikiqa trecqa; do
  export TABLE=$RESULTS/minilm_$corpus.tsv
  CORPORA=$corpus SEEDS="0 1 2" recipes/cascade/table3.sh > /dev/null
  SUFFIX=_drawn NOTE=", one exit an update" SEEDS="0 1 2" CORPORA=$corpus DEPTHS= recipes/cascade/table3.sh > /dev/null
  SUFFIX=_untransferred NOTE=", no transfer" SEEDS=0 CORPORA=$corpus DEPTHS=$full recipes/cascade/table2.sh > /dev/null
  cat "$TABLE"
done

# The paper's claims. A difference is the second run's less the first's.
compare() {  # TITLE RUN RUN [RATIO]: of rankings that were made above, where both runs were trained
  if [ -e "$RUNS/$2/test.json" ] && [ -e "$RUNS/$3/test.json" ]; then
    echo "# $1"
    (cd "$RUNS" && "$wqa" compare --run "$2/test.json.0.trec" --run "$3/test.json.${4:-0}.trec" \
      --qrels "$2/test.json.qrels" --filter all --metrics map,p@1)
    echo
  fi
}
for corpus in wikiqa trecqa; do
  mono=tanda/${corpus}_$full cascade=cascade/$corpus
  for seed in 0 1 2; do
    drawn=${cascade}_drawn_seed$seed
    compare "(a) $corpus: transfer, monolithic, seed $seed" "${mono}_untransferred_seed$seed" "${mono}_seed$seed"
    compare "(a) $corpus: transfer, cascade, seed $seed" "${cascade}_untransferred_seed$seed" "${cascade}_seed$seed"
    compare "(b) $corpus: the monolithic ranker, the cascade's last exit, seed $seed" "${mono}_seed$seed" "${cascade}_seed$seed"
    compare "(b) $corpus: the same, one exit an update, seed $seed" "${mono}_seed$seed" "$drawn"
    compare "(c) $corpus: the cascade at 0, at 0.3, seed $seed" "${cascade}_seed$seed" "${cascade}_seed$seed" 0.3
    compare "(c) $corpus: the same, one exit an update, seed $seed" "$drawn" "$drawn" 0.3
  done
  compare "(d) $corpus: a monolithic ranker of $lower layers, the cascade at 0.5" "tanda/${corpus}_${lower}_seed0" \
    "${cascade}_seed0" 0.5
done > "$RESULTS/minilm_claims.txt"
cat "$RESULTS/minilm_claims.txt"

CORPUS=wikiqa NAME=minilm_figure2 BUDGET=0.8 SEEDS=0 recipes/cascade/figure2.sh
keep_logs "$RUNS/tanda" minilm_tanda_
keep_logs "$RUNS/cascade" minilm_cascade_
