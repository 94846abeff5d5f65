#!/usr/bin/env bash
# Tables 2 and 3, the figures of what minilm_train.sh has trained so far: results/minilm_CORPUS.tsv, tests of the paper's claims over
# questions and seeds (minilm_claims_CORPUS.txt) and Figure 2 (minilm_figure2.*), or base_... with SIZE=base; rankings go to runs/.
export TRAIN=0
corpora=${CORPORA:-wikiqa trecqa}
. "$(dirname "$0")/minilm.bash"
if [ "${SMOKE:-0}" != 1 ]; then export DEPTHS=${EXITS//,/ }; fi
. "$(dirname "$0")/../settings.sh"
needs plots matplotlib
[ "${SMOKE:-0}" != 1 ] || recipes/cascade/minilm_train.sh

for corpus in $corpora; do
  export TABLE=$RESULTS/${size}_$corpus.tsv CORPORA=$corpus
  recipes/cascade/table3.sh > /dev/null
  SUFFIX=_drawn NOTE=", one exit an update" DEPTHS='' recipes/cascade/table3.sh > /dev/null
  SUFFIX=_untransferred NOTE=", no transfer" DEPTHS='' recipes/cascade/table3.sh > /dev/null
  SUFFIX=_drawn_untransferred NOTE=", one exit an update, no transfer" DEPTHS='' recipes/cascade/table3.sh > /dev/null
  row "$TABLE" "MT $full layers, no transfer" "$corpus" $(SUFFIX=_untransferred trained mono_run "$corpus" "$full")
  for depth in $full $lower; do
    row "$TABLE" "MT $depth layers, mean head, no transfer" "$corpus" $(SUFFIX=_mean_${depth}_untransferred trained cascade_run "$corpus")
  done
  judgements=("$RUNS"/*/"${corpus}"_*/test.json.qrels)
  [ -e "${judgements[0]}" ] || continue  # nothing of this corpus is trained
  cat "$TABLE"

  # The paper's claims. A difference is the second system's less the first's.
  systems=() pairs=(--pair "no transfer" "monolithic, $full layers")
  mono=$RUNS/tanda/${corpus}_ cascade=$RUNS/cascade/$corpus
  system "no transfer" "$mono${full}_untransferred_seed%/test.json.0.trec"
  system "no transfer, mean head" "${cascade}_mean_${full}_untransferred_seed%/test.json.0.trec"
  system "no transfer, mean head, $lower layers" "${cascade}_mean_${lower}_untransferred_seed%/test.json.0.trec"
  for depth in $full $lower $others; do system "monolithic, $depth layers" "$mono${depth}_seed%/test.json.0.trec"; done
  for ratio in 0 0.3 0.4 0.5; do
    system "cascade at $ratio" "${cascade}_seed%/test.json.$ratio.trec"
    system "one exit an update at $ratio" "${cascade}_drawn_seed%/test.json.$ratio.trec"
    system "cascade without transfer at $ratio" "${cascade}_untransferred_seed%/test.json.$ratio.trec"
    system "one exit an update without transfer at $ratio" "${cascade}_drawn_untransferred_seed%/test.json.$ratio.trec"
    system "sequence at $ratio" "$(json_of "$(sequence_of "$corpus" %)").$ratio.trec"
  done
  pairs+=(--pair "no transfer" "no transfer, mean head" "cascade without transfer at 0" "cascade without transfer at 0.5")
  for name in "cascade without transfer" "one exit an update without transfer"; do
    pairs+=(--pair "no transfer, mean head" "$name at 0" "$name at 0.3" --pair "$name at 0" "$name at 0.3")
    pairs+=(--pair "no transfer, mean head, $lower layers" "$name at 0.3" "$name at 0.4" "$name at 0.5")
  done
  for name in cascade "one exit an update"; do
    pairs+=(--pair "monolithic, $full layers" "$name at 0" --pair "$name at 0" "$name at 0.3")
    pairs+=(--pair "monolithic, $lower layers" "$name at 0.3" "$name at 0.4" "$name at 0.5")
    for ratio in 0.3 0.4 0.5; do pairs+=(--pair "sequence at $ratio" "$name at $ratio"); done
  done
  keep_output "$RESULTS/${size}_claims_$corpus.txt" "$python" recipes/claims.py "${judgements[0]}" \
    map,p@1 "${systems[@]}" "${pairs[@]}"
  for rankings in "${systems[@]}"; do
    name=${rankings#"$RUNS/"} name=${name//[.\/]test.json/}
    if [[ $name == *.trec && -e $rankings ]]; then keep_run "$rankings" "${size}_$(tr / _ <<< "${name%.trec}")"; fi
  done
done

if [[ $corpora == *wikiqa* && -e $RUNS/cascade/wikiqa_seed${SEEDS%% *}/model.params ]]; then
  CORPUS=wikiqa NAME=${size}_figure2 BUDGET=0.8 SEEDS=${SEEDS%% *} recipes/cascade/figure2.sh
fi
keep_logs "$RUNS/tanda" ${size}_tanda_
keep_logs "$RUNS/cascade" ${size}_cascade_
