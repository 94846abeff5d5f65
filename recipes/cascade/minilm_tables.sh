#!/usr/bin/env bash
# Tables 2 and 3, the figures: evaluates what recipes/cascade/minilm_train.sh trained, into results/minilm_wikiqa.tsv and
# results/minilm_trecqa.tsv (TREC-QA: clean test), holds the paper's claims to tests over questions and seeds
# (results/minilm_claims_wikiqa.txt, minilm_claims_trecqa.txt), and draws Figure 2 for WikiQA (results/minilm_figure2.*). With
# SIZE=base it evaluates what recipes/cascade/base_train.sh trained, into results/base_*.
#
#   DATA=data recipes/cascade/minilm_tables.sh
export TRAIN=0
corpora=${CORPORA:-wikiqa trecqa} size=${SIZE:-minilm}
if [ "${SMOKE:-0}" = 1 ]; then
  full=3 lower=1
  export SEEDS="0 1"
else
  if [ "$size" = base ]; then
    full=12 lower=6
    export RUNS=${RUNS:-runs/cascade_base} EXITS=4,6,8,10,12 DEPTHS="4 6 8 10 12" SEEDS=${SEEDS:-0 1 2}
  else
    full=6 lower=4
    export RUNS=${RUNS:-runs/cascade_transfer} EXITS=2,4,6 DEPTHS="2 4 6" SEEDS=${SEEDS:-0 1 2 3 4}
  fi
fi
. "$(dirname "$0")/../settings.sh"
needs plots matplotlib
[ "${SMOKE:-0}" != 1 ] || recipes/cascade/minilm_train.sh

for corpus in $corpora; do
  export TABLE=$RESULTS/${size}_$corpus.tsv
  CORPORA=$corpus recipes/cascade/table3.sh > /dev/null
  SUFFIX=_drawn NOTE=", one exit an update" CORPORA=$corpus DEPTHS= recipes/cascade/table3.sh > /dev/null
  SUFFIX=_untransferred NOTE=", no transfer" CORPORA=$corpus DEPTHS=$full recipes/cascade/table2.sh > /dev/null
  cat "$TABLE"
done

# The paper's claims. A difference is the second system's less the first's.
system() {  # NAME RATIO FIGURES: adds a system whose rankings exist; FIGURES is its file of a seed, with % for the seed
  local seed run runs=()
  for seed in $SEEDS; do
    run=${3/\%/$seed}.$2.trec
    [ ! -e "$run" ] || runs+=("$run")
  done
  if [ ${#runs[@]} != 0 ]; then systems+=(--system "$1" "${runs[@]}") names="$names|$1|"; fi
}
pair() { if [[ $names == *"|$1|"* && $names == *"|$2|"* ]]; then pairs+=(--pair "$1" "$2"); fi; }
for corpus in $corpora; do
  systems=() pairs=() names=
  mono=$RUNS/tanda/${corpus}_ cascade=$RUNS/cascade/$corpus
  system "no transfer" 0 "$mono${full}_untransferred_seed%/test.json"
  for depth in $full $lower; do system "monolithic, $depth layers" 0 "$mono${depth}_seed%/test.json"; done
  for ratio in 0 0.3 0.4 0.5; do
    system "cascade at $ratio" $ratio "${cascade}_seed%/test.json"
    system "one exit an update at $ratio" $ratio "${cascade}_drawn_seed%/test.json"
    system "sequence at $ratio" $ratio "$(sequence_of "$corpus" %).test.json"
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
