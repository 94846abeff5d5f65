#!/usr/bin/env bash
# Tables 1 to 3 and Figure 2 in small: MiniLM, and 16 of the 35 articles of SQuAD 2.0's development set as an open collection
# (articles.txt), 646 paragraphs; questions of ten articles to train, three to tune, three to report. The re-ranker and DC-BERT
# have three seeds. Writes results/minilm_squad.tsv, minilm_claims.txt and minilm_figure2*, with times of one sitting. First, in
# untrained.tsv, the similarity of a question and a paragraph by MiniLM without training.
#   DATA=data ARCHIVE=dev-v2.0.json.gz recipes/dcbert/minilm_tables.sh    nearly three hours on two cores
. "$(dirname "$0")/minilm.bash"
table=$RESULTS/minilm_squad.tsv speed=$RUNS/dcbert/speed_minilm_squad.json
columns=p@1,p@5,p@10,pbt@10,ptb@10,map,em,f1,p@1_kept,p@10_kept,em_kept,questions_per_second,speedup

prepare squad
documents=$(tested_documents squad) cache=$RUNS/dcbert/untrained.cache  # both similarities compare the same encodings
"$wqa" encode "maxsim:$ENCODER" --documents "$documents" --out "$cache" --precision "$RANK_PRECISION" --ctx "$CTX"
for name in "maxsim:$ENCODER" "cosine:$ENCODER"; do
  figures=$RUNS/dcbert/untrained_${name%%:*}.json
  evaluate "$figures" squad "$name" --cache "$cache" --total "$(total_of squad)" --long-questions truncate \
    --precision "$RANK_PRECISION"
  "$python" recipes/rows.py "$RESULTS/untrained.tsv" squad "${columns%%,em*},seeds" --row "$name" "$figures"
done

timed "$speed" squad $(possible bert student dcbert_1 dcbert_2 dcbert_3 linear lstm int8) tfidf bm25
rows "$table" squad "$columns" "$speed" bert dcbert_1
ROW_SEEDS=$FIRST_SEED rows "$table" squad "$columns" "$speed" $(possible dcbert_2 dcbert_3 linear lstm student int8)
retriever_row "$table" TF-IDF squad tfidf "$columns" "$speed"
retriever_row "$table" BM25 squad bm25 "$columns" "$speed"
cat "$table"

# The paper's claims.
claims() {
  for seed in $SEEDS; do compare "(a) the re-ranker, DC-BERT with one layer" bert dcbert_1 "$seed"; done
  compare "(b) Linear, DC-BERT with one layer" linear dcbert_1 "$FIRST_SEED"
  compare "(b) LSTM, DC-BERT with one layer" lstm dcbert_1 "$FIRST_SEED"
  compare "(c) DC-BERT with one layer, with three" dcbert_1 dcbert_3 "$FIRST_SEED"
  compare "(d) the student of $STUDENT_DEPTH layers, DC-BERT with one layer" student dcbert_1 "$FIRST_SEED"
}
keep_output "$RESULTS/minilm_claims.txt" claims

# This has a smoke mode of its own.
[ "${SMOKE:-0}" = 1 ] || NAME=minilm_figure2 SEEDS=$FIRST_SEED recipes/dcbert/figure2.sh
keep_logs "$RUNS/dcbert" minilm_
