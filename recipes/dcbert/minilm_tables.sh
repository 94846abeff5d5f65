#!/usr/bin/env bash
# Tables 1 to 3 and Figure 2 in small: MiniLM, and 16 of the 35 articles of SQuAD 2.0's development set as an open collection
# (articles.txt), 646 paragraphs; questions of ten articles to train, three to tune, three to report. The re-ranker and DC-BERT
# have three seeds. Trains what is missing, nearly three hours on two cores. Writes results/minilm_squad.tsv, with the times of one sitting (speed_minilm_squad.txt), holds the paper's claims to
# paired tests (minilm_claims.txt), and runs figure2.sh (minilm_figure2*).
#
#   DATA=data ARCHIVE=dev-v2.0.json.gz recipes/dcbert/minilm_tables.sh
#   SMOKE=1 recipes/dcbert/minilm_tables.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. recipes/dcbert/minilm.bash
table=$RESULTS/minilm_squad.tsv
columns=p@1,p@5,p@10,pbt@10,ptb@10,map,em,f1,p@1_kept,p@10_kept,em_kept,questions_per_second,speedup

rankers=(bert student dcbert_1 dcbert_2 dcbert_3 linear lstm)
if has_int8; then rankers+=(int8); fi
for name in "${rankers[@]}"; do fit "$name" squad; done
speed=$RUNS/dcbert/speed_minilm_squad.json
timed "$speed" squad "${rankers[@]}" tfidf bm25

row "$table" "re-ranker" squad bert "$columns" "$speed"
row "$table" "DC-BERT, K = 1" squad dcbert_1 "$columns" "$speed"
ROW_SEEDS=$FIRST_SEED
for layers in 2 3; do row "$table" "DC-BERT, K = $layers" squad "dcbert_$layers" "$columns" "$speed"; done
row "$table" "DC-BERT-Linear" squad linear "$columns" "$speed"
row "$table" "DC-BERT-LSTM" squad lstm "$columns" "$speed"
row "$table" "student of $STUDENT_DEPTH layers" squad student "$columns" "$speed"
if has_int8; then row "$table" "re-ranker, int8" squad int8 "$columns" "$speed"; fi
retriever_row "$table" TF-IDF squad tfidf "$columns" "$speed"
retriever_row "$table" BM25 squad bm25 "$columns" "$speed"
cat "$table"

# The paper's claims.
{
  for seed in $SEEDS; do compare "(a) the re-ranker, DC-BERT with one layer" bert dcbert_1 "$seed"; done
  compare "(b) Linear, DC-BERT with one layer" linear dcbert_1 "$FIRST_SEED"
  compare "(b) LSTM, DC-BERT with one layer" lstm dcbert_1 "$FIRST_SEED"
  compare "(c) DC-BERT with one layer, with three" dcbert_1 dcbert_3 "$FIRST_SEED"
  compare "(d) the student of $STUDENT_DEPTH layers, DC-BERT with one layer" student dcbert_1 "$FIRST_SEED"
} > "$RESULTS/minilm_claims.txt"
cat "$RESULTS/minilm_claims.txt"

if [ "${SMOKE:-0}" != 1 ]; then  # these have a smoke mode of their own
  NAME=minilm_figure2 SEEDS=$FIRST_SEED recipes/dcbert/figure2.sh
fi
keep_logs "$RUNS/dcbert" minilm_
