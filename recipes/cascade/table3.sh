#!/usr/bin/env bash
# Table 3 (Soldaini and Moschitti 2020) on ASNQ and GPD: monolithic rankers of 4 to 12 layers, the sequential ranker over them
# and the cascade at drop ratios 0.3, 0.4 and 0.5, and each of the cascade's exits. GPD is not public: any collection under
# data/gpd/ stands in; without one its columns stay empty.
#
#   recipes/cascade/table3.sh        RoBERTa-base; settings: recipes/settings.sh
. "$(dirname "$0")/../settings.sh"
table=${TABLE:-$RESULTS/table3.tsv}

for corpus in ${CORPORA:-asnq gpd}; do
  if [ ! -e "$(test_of "$corpus")" ]; then
    echo "note: $(test_of "$corpus") is not there; the columns of $corpus stay empty" >&2
    continue
  fi
  if [ "${TRAIN:-1}" = 1 ]; then
    case $corpus in
      asnq) recipes/tanda/transfer.sh; recipes/cascade/transfer.sh ;;
      *) CORPORA=$corpus recipes/tanda/adapt.sh; CORPORA=$corpus recipes/cascade/adapt.sh ;;
    esac
  fi
  for depth in $DEPTHS; do mono_row "$table" "$corpus" "$depth"; done
  sequences=()
  for seed in $(seeds_of "$corpus"); do
    rankers=
    for depth in $DEPTHS; do
      run=$(mono_run "$corpus" "$depth" "$seed")
      if [ ! -e "$run/model.params" ]; then
        echo "note: not every monolithic ranker of $corpus, seed $seed, is trained; this sequence is left out" >&2
        continue 2
      fi
      rankers="$rankers${rankers:+, }\"${run#"$RUNS"/}\""
    done
    if [ -z "$DEPTHS" ]; then continue; fi  # the cascade's rows alone
    file=$(sequence_of "$corpus" "$seed") content="{\"rankers\": [$rankers], \"drop_ratio\": 0.3}"
    same_as "$file.json" "$content" || echo "$content" > "$file.json"
    evaluate "$file.test.json" "$corpus" "$file.json" --drop-ratio 0.3 --drop-ratio 0.4 --drop-ratio 0.5
    sequences+=("$file.test.json")
  done
  for ratio in 0.3 0.4 0.5; do
    [ ${#sequences[@]} = 0 ] || collect "$table" SR "$ratio" "$corpus" "${sequences[@]}"
  done
  cascade_rows "$table" "$corpus" 0.3 0.4 0.5
  # The paper drops inside batches (section 4.3), which ASNQ's 400 candidates exceed.
  if [ "$corpus" = asnq ]; then POOL=batch NOTE=" in batches" cascade_rows "$table" "$corpus" 0.3 0.4 0.5; fi
done
cat "$table"
