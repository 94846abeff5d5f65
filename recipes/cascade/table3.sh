#!/usr/bin/env bash
# Table 3 (Soldaini and Moschitti 2020) on ASNQ and GPD: monolithic rankers of 4 to 12 layers, the sequential ranker over them
# and the cascade at drop ratios, and each of the cascade's exits. GPD is not public: any collection under data/gpd/ stands in;
# without one its columns stay empty. TRAIN=0 evaluates what is trained.
. "$(dirname "$0")/../settings.sh"
table=${TABLE:-$RESULTS/${NAME:-table3}.tsv} ratios=${RATIOS-0.3 0.4 0.5}

for corpus in ${CORPORA:-asnq gpd}; do
  if [ ! -e "$(test_of "$corpus")" ]; then
    echo "note: $(test_of "$corpus") is not there; the columns of $corpus stay empty" >&2
    continue
  fi
  if [ "${TRAIN:-1}" = 1 ]; then
    step=adapt
    if [ "$corpus" = asnq ]; then step=transfer; fi
    CORPORA=$corpus recipes/tanda/$step.sh
    CORPORA=$corpus recipes/cascade/$step.sh
  fi
  for depth in $DEPTHS; do
    row "$table" "MT $depth layers${NOTE:-}" "$corpus" $(trained mono_run "$corpus" "$depth")
  done
  files=()
  for seed in ${ratios:+${DEPTHS:+$(seeds_of "$corpus")}}; do
    rankers= sequence=$(sequence_of "$corpus" "$seed")
    for depth in $DEPTHS; do
      run=$(mono_run "$corpus" "$depth" "$seed")
      if [ ! -e "$run/model.params" ]; then
        echo "note: not every monolithic ranker of $corpus, seed $seed, is trained; this sequence is left out" >&2
        continue 2
      fi
      rankers="$rankers${rankers:+, }\"${run#"$RUNS"/}\""
      [ "$sequence" -nt "$run/model.params" ] || rm -f "$sequence"
    done
    content="{\"rankers\": [$rankers], \"drop_ratio\": 0.3}"
    same_as "$sequence" "$content" || echo "$content" > "$sequence"
    files+=("$(json_of "$sequence")")
    evaluate "${files[-1]}" "$corpus" "$sequence" --drop-ratio 0.3 --drop-ratio 0.4 --drop-ratio 0.5
  done
  for ratio in $ratios; do
    [ ${#files[@]} = 0 ] || collect "$table" SR "$ratio" "$corpus" "${files[@]}"
  done
  cascade_rows "$table" "$corpus" $ratios
  # The paper drops inside batches (section 4.3), which ASNQ's 400 candidates exceed.
  if [ "$corpus" = asnq ]; then POOL=batch NOTE=" in batches" cascade_rows "$table" "$corpus" $ratios; fi
done
[ ! -e "$table" ] || cat "$table"
