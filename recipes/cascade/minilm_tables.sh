#!/usr/bin/env bash
# Tables 2 and 3, the figures: evaluates what recipes/cascade/minilm_train.sh trained, into results/minilm_wikiqa.tsv
# and results/minilm_trecqa.tsv (TREC-QA: clean dev), holds the paper's claims to tests over questions and seeds
# (results/minilm_claims_wikiqa.txt, minilm_claims_trecqa.txt), and draws Figure 2 for WikiQA (results/minilm_figure2.*). With
# SIZE=base it evaluates what recipes/cascade/base_train.sh trained, TREC-QA's on its clean test questions, into results/base_*.
#
#   DATA=data recipes/cascade/minilm_tables.sh
#   SMOKE=1 recipes/cascade/minilm_tables.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
export TRAIN=0
corpora=${CORPORA:-wikiqa trecqa} size=${SIZE:-minilm}
if [ "${SMOKE:-0}" = 1 ]; then
  full=3 lower=1
  export SEEDS="0 1"
else
  data=${DATA:-data}
  export WIKIQA=$data/wikiqa TRECQA=$data/trecqa
  if [ "$size" = base ]; then
    full=12 lower=6
    export RUNS=${RUNS:-runs/cascade_base} EXITS=4,6,8,10,12 DEPTHS="4 6 8 10 12" SEEDS=${SEEDS:-0 1 2}
  else
    full=6 lower=4
    export RUNS=${RUNS:-runs/cascade_transfer} EXITS=2,4,6 DEPTHS="2 4 6" SEEDS=${SEEDS:-0 1 2 3 4}
    export TRECQA_TEST=$data/trecqa/dev-clean.jsonl
  fi
fi
. recipes/settings.sh
needs plots matplotlib
if [ "${SMOKE:-0}" = 1 ]; then recipes/cascade/minilm_train.sh; fi

for corpus in $corpora; do
  export TABLE=$RESULTS/${size}_$corpus.tsv
  CORPORA=$corpus recipes/cascade/table3.sh > /dev/null
  SUFFIX=_drawn NOTE=", one exit an update" CORPORA=$corpus DEPTHS= recipes/cascade/table3.sh > /dev/null
  SUFFIX=_untransferred NOTE=", no transfer" CORPORA=$corpus DEPTHS=$full recipes/cascade/table2.sh > /dev/null
  cat "$TABLE"
done

# The paper's claims. A difference is the second system's less the first's.
system() {  # NAME RATIO FILE...: adds a system, a JSON file of figures a seed, where its ranking exists
  local name=$1 ratio=$2 figures runs=(); shift 2
  for figures in "$@"; do
    if [ -e "$figures.$ratio.trec" ]; then runs+=("$figures.$ratio.trec"); fi
  done
  if [ ${#runs[@]} != 0 ]; then systems+=(--system "$name" "${runs[@]}") names="$names|$name|"; fi
}
pair() { if [[ $names == *"|$1|"* && $names == *"|$2|"* ]]; then pairs+=(--pair "$1" "$2"); fi; }
over_seeds() { local seed; for seed in $SEEDS; do printf "$1\n" "$seed"; done; }  # NAME with %s
for corpus in $corpora; do
  systems=() pairs=() names=
  mono=$RUNS/tanda/${corpus}_ cascade=$RUNS/cascade/$corpus
  system "no transfer" 0 $(over_seeds "$mono${full}_untransferred_seed%s/test.json")
  for depth in $full $lower; do system "monolithic, $depth layers" 0 $(over_seeds "$mono${depth}_seed%s/test.json"); done
  for ratio in 0 0.3 0.4 0.5; do
    system "cascade at $ratio" $ratio $(over_seeds "${cascade}_seed%s/test.json")
    system "one exit an update at $ratio" $ratio $(over_seeds "${cascade}_drawn_seed%s/test.json")
    system "sequence at $ratio" $ratio $(over_seeds "$(sequence_of "$corpus" %s).test.json")
  done
  pair "no transfer" "monolithic, $full layers"
  for name in cascade "one exit an update"; do
    pair "monolithic, $full layers" "$name at 0"
    pair "$name at 0" "$name at 0.3"
    for ratio in 0.3 0.4 0.5; do pair "monolithic, $lower layers" "$name at $ratio"; done
    for ratio in 0.3 0.4 0.5; do pair "sequence at $ratio" "$name at $ratio"; done
  done
  [ ${#pairs[@]} = 0 ] || "$python" recipes/claims.py "$mono${full}_seed${SEEDS%% *}/test.json.qrels" map,p@1 "${systems[@]}" \
    "${pairs[@]}" | tee "$RESULTS/${size}_claims_$corpus.txt"
done

if [[ $corpora == *wikiqa* ]]; then
  CORPUS=wikiqa NAME=${size}_figure2 BUDGET=0.8 SEEDS=${SEEDS%% *} recipes/cascade/figure2.sh
fi
keep_logs "$RUNS/tanda" ${size}_tanda_
keep_logs "$RUNS/cascade" ${size}_cascade_
