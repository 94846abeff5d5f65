#!/usr/bin/env bash
# Table 5 in small: the first two thirds of the questions of SQuAD's development set train and the rest test, cut between two
# paragraphs. Word vectors are distilled from MiniLM; Compare-Aggregate has one seed. Writes $RESULTS/squad_small*.
#   python data_scripts/squad.py --unanswered --out data/squad_sent && DATA=data recipes/cosinet/squad_small.sh
export CA_SEEDS=${CA_SEEDS:-0} MODELS=${MODELS:-cosinet cosinet_list cosinet_list_birnn ca ca_list ca_list_birnn}
if [ "${SMOKE:-0}" != 1 ]; then
  export RUNS=${RUNS:-runs/cosinet_squad} TABLE_KIND=${TABLE_KIND:-distilled}
else
  export MODELS="cosinet_list cosinet_list_birnn ca_list_birnn"
fi
. "$(dirname "$0")/settings.bash"
divided=$RUNS/cosinet/squad_small
if [ ! -e "$divided/test.jsonl" ]; then
  mkdir -p "$divided"
  "$python" recipes/cosinet/divide.py "$SQUAD/test.jsonl" 0.66 "$divided/train.jsonl" "$divided/test.jsonl"
fi
export SQUAD=$divided
TABLE=$RESULTS/squad_small.tsv CLAIMS=$RESULTS/squad_small_claims.txt recipes/cosinet/table5.sh
keep_logs "$RUNS/cosinet" squad_
