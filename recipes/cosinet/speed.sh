#!/usr/bin/env bash
# Cosinet's speed beside that of a monolithic ranker (section 5.5: "9.5 seconds to train ... in contrast ... 17 min and 50 sec"),
# taken in turns on one machine: candidates a second from text to ranking, the latency of one question of 100 candidates, and pairs
# a second in training. Both in each of their precisions; ratios are to the monolithic ranker's fastest. Trains what is missing;
# writes $RESULTS/speed.tsv.
#
#   RUNS=runs/cosinet_minilm ENCODER=minilm TABLE_KIND=ppmi recipes/cosinet/speed.sh     settings: recipes/cosinet/settings.bash
#   SMOKE=1 recipes/cosinet/speed.sh
. "$(dirname "$0")/settings.bash"
MODEL=${MODEL:-cosinet_list_birnn} ROUNDS=${ROUNDS:-5}
UPDATES=${UPDATES:-40} LATENCIES=${LATENCIES:-200}  # of the monolithic ranker's training; single questions
if [ "${SMOKE:-0}" = 1 ]; then UPDATES=2 LATENCIES=3; fi

# Ten times the padded words of a batch, at a higher rate: the difference of dev MAP is within that of seeds (logs/README.md). The
# figures of quality are of the default, 2,000.
FAST_OPTIONS=${FAST_OPTIONS:---tokens-per-batch 20000 --learning-rate 5e-4}
SUFFIX=_fast
TRAIN_OPTIONS=$FAST_OPTIONS fit "$MODEL" wikiqa
fast=$(run_of "$MODEL" wikiqa)
SUFFIX=
fit bert wikiqa
slow=$(run_of bert wikiqa)
if [ ! "$slow/int8.safetensors" -nt "$slow/model.params" ]; then
  "$wqa" quantize "$slow" --data "$(dev_of wikiqa)"
fi
ROUNDS=$ROUNDS UPDATES=$UPDATES LATENCIES=$LATENCIES WQA=$wqa "$python" recipes/cosinet/speed.py \
  "$fast" "$slow" --test "$(test_of wikiqa)" --train "$(train_of wikiqa)" --filter "$(filter_of wikiqa)" \
  --out "$RESULTS/speed.tsv"
