#!/usr/bin/env bash
# Table 5 in small: the first two thirds of the questions of SQuAD's development set train and the rest test, cut between two
# paragraphs. Word vectors are distilled from MiniLM; Compare-Aggregate has one seed. Writes $RESULTS/squad_small*.
#   python data_scripts/squad.py --unanswered --out data/squad_sent && DATA=data recipes/cosinet/squad_small.sh
CA_SEEDS=${CA_SEEDS:-0}
if [ "${SMOKE:-0}" = 1 ]; then
  MODELS="cosinet_list cosinet_list_birnn ca_list_birnn"
else
  RUNS=${RUNS:-runs/cosinet_squad} TABLE_KIND=${TABLE_KIND:-distilled}
fi
. "$(dirname "$0")/settings.bash"
MODELS=${MODELS:-cosinet cosinet_list cosinet_list_birnn ca ca_list ca_list_birnn} divided=$RUNS/cosinet/squad_small
if [ ! -e "$divided/test.jsonl" ]; then
  mkdir -p "$divided"
  "$python" recipes/cosinet/divide.py "$SQUAD/test.jsonl" 0.66 "$divided/train.jsonl" "$divided/test.jsonl"
fi
SQUAD=$divided
rows_and_claims "$RESULTS/squad_small.tsv" squad p@1,mrr "$RESULTS/squad_small_claims.txt"
keep_logs "$RUNS/cosinet" squad_
