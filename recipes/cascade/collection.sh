#!/usr/bin/env bash
# The setting in which the cascade pays (Soldaini and Moschitti 2020, section 1): hundreds of candidates a question. WikiQA's and
# SelQA's test questions are asked of one index of all their documents, so that a question has 60 to 900 sentences, by the
# cascade at several drop ratios, the monolithic ranker, the sequence of rankers, and BM25 over the same sentences. Trains what is
# missing with MiniLM (6 layers) in place of RoBERTa-base: a transfer on SQuAD's questions, each with its sentence and two
# retrieved ones (data_scripts/squad_sentences.py) in place of ASNQ, then WikiQA. Drop ratios are tuned on WikiQA's dev questions
# and their retrieved sentences. Writes results/collection.tsv, collection_tuned.txt and paired tests (collection_claims.txt);
# with TIMED=1, on a quiet machine, also collection_times.tsv, and collection.png, which lays quality beside time.
#
#   DATA=data ARCHIVE=FOLDER recipes/cascade/collection.sh    ARCHIVE is the folder of Du et al. 2017, where data has no SQuAD
#   SMOKE=1 recipes/cascade/collection.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
data=${DATA:-data}
if [ "${SMOKE:-0}" != 1 ]; then
  export ENCODER=minilm RUNS=${RUNS:-runs/cascade_collection} EXITS=2,4,6 DEPTHS="2 4 6" WIKIQA=${WIKIQA:-$data/wikiqa}
  export TRANSFER_EPOCHS=1 ADAPT_EPOCHS=4 PATIENCE=0 WARMUP=100 UPDATE_TOKENS=0 LEARNING_RATE=3e-5
  export PRECISION=${PRECISION:-bfloat16} ASNQ_TRAIN=$RUNS/transfer.jsonl ASNQ_DEV=
  SELQA=${SELQA:-$data/selqa} collections=${COLLECTIONS:-wikiqa selqa}
  tops=${TOPS:-5 20 80} dev_top=${DEV_TOP:-20} grid=0,0.3,0.5,0.7,0.8,0.9 full=6 precision=(--precision "${RANK_PRECISION:-int8}")
else
  TIMED=1 collections=wikiqa tops=4 dev_top=4 grid=0,0.5 full=3 precision=()
fi
export CORPORA=wikiqa CASCADE_OPTIONS="--trained-exits all --distillation 0.5"
. recipes/settings.sh
if [ "${TIMED:-0}" = 1 ]; then needs plots matplotlib; fi

if [ "${SMOKE:-0}" != 1 ]; then
  DATA=$data SELQA= NEGATIVES=2 NEAR=0 recipes/transfer_corpus.sh "$ASNQ_TRAIN"
fi
recipes/cascade/adapt.sh
recipes/tanda/adapt.sh
[ "${TRAIN_ONLY:-0}" = 0 ] || exit 0

# One index of all documents, and files of questions with the sentences that they retrieve.
collection=$RUNS/collection
mkdir -p "$collection"
documents_of() { case $1 in wikiqa) echo "$WIKIQA/documents.jsonl" ;; selqa) echo "$SELQA/documents.jsonl" ;; esac; }
open_questions_of() {  # COLLECTION SPLIT
  case $1 in wikiqa) echo "$WIKIQA/$2.questions.jsonl" ;; selqa) echo "$SELQA/$2.questions.jsonl" ;; esac
}
if [ "${SMOKE:-0}" = 1 ]; then
  "$python" recipes/dcbert/builtin_collection.py "$collection/builtin"
  documents_of() { echo "$collection/builtin/documents.jsonl"; }
  open_questions_of() { echo "$collection/builtin/$2.questions.jsonl"; }
fi
if [ ! -e "$collection/index" ]; then
  for name in $collections; do cat "$(documents_of "$name")"; done > "$collection/documents.jsonl"
  "$wqa" index "$collection/documents.jsonl" --sentences --method tfidf --out "$collection/index"
fi
with_sentences() {  # COLLECTION SPLIT DOCUMENTS: all questions of WikiQA, some of SelQA's 1,590
  local out=$collection/$1_$2_$3.jsonl limit=()
  if [ "$1" = selqa ]; then limit=(--limit "${SELQA_QUESTIONS:-100}"); fi
  [ -e "$out" ] || "$python" recipes/cascade/collection_questions.py "$collection/index" "$(open_questions_of "$1" "$2")" \
    "$out" --top "$3" ${limit[@]+"${limit[@]}"}
}

cascade=$(cascade_run wikiqa 0) monolithic=$(mono_run wikiqa "$full" 0) sequence=$RUNS/sr_wikiqa.json
rankers=
for depth in $DEPTHS; do
  run=$(mono_run wikiqa "$depth" 0)
  rankers="$rankers${rankers:+, }\"${run#"$RUNS"/}\""
done
[ -e "$sequence" ] || echo "{\"rankers\": [$rankers]}" > "$sequence"
if [ ${#precision[@]} != 0 ] && [ "${precision[1]}" = int8 ]; then
  for run in "$cascade" $(for depth in $DEPTHS; do mono_run wikiqa "$depth" 0; done); do
    [ -e "$run/int8.safetensors" ] || "$wqa" quantize "$run" --data "$WIKIQA/dev.jsonl"
  done
fi
with_sentences wikiqa dev "$dev_top"
if [ ! -e "$cascade/tuned.json" ] || [ ! -e "$RESULTS/collection_tuned.txt" ]; then  # figure2.sh tunes a run too
  "$wqa" tune "$cascade" --data "$collection/wikiqa_dev_$dev_top.jsonl" --filter all --grid "$grid" --max-loss 0.005 \
    --out "$collection/tune" --long-questions truncate --ctx "$device" ${precision[@]+"${precision[@]}"} \
    | sed "s|$RUNS/||g" | tee "$RESULTS/collection_tuned.txt"
fi

table=$RESULTS/collection.tsv
options=(--long-questions truncate ${precision[@]+"${precision[@]}"})
figures_of() { echo "$collection/$1_$2.json"; }  # NAME CORPUS
row() { "$python" recipes/collect.py "$table" "$1" "$2" "$3" "$(figures_of "$4" "$3")"; }  # TITLE LABEL CORPUS NAME
TEST_FILTER=all
for name in $collections; do
  for top in $tops; do
    with_sentences "$name" test "$top"
    corpus=${name}_$top
    test_of() { echo "$collection/${name}_test_$top.jsonl"; }
    evaluate "$(figures_of bm25 "$corpus")" "$corpus" bm25
    evaluate "$(figures_of monolithic "$corpus")" "$corpus" "$monolithic" "${options[@]}"
    evaluate "$(figures_of cascade "$corpus")" "$corpus" "$cascade" --drop-ratio 0 --drop-ratio 0.3 --drop-ratio 0.4 \
      --drop-ratio 0.5 --drop-ratio tuned "${options[@]}"
    evaluate "$(figures_of sequence "$corpus")" "$corpus" "$sequence" --drop-ratio 0.3 --drop-ratio 0.4 --drop-ratio 0.5 \
      "${options[@]}"
    row BM25 0 "$corpus" bm25
    row "monolithic, $full layers" 0 "$corpus" monolithic
    for ratio in 0 0.3 0.4 0.5 tuned; do row cascade "$ratio" "$corpus" cascade; done
    for ratio in 0.3 0.4 0.5; do row "sequence" "$ratio" "$corpus" sequence; done
  done
done
cat "$table"
{
  for name in $collections; do
    for top in $tops; do
      for ratio in 0 0.3 0.4 0.5 tuned; do
        echo "# the monolithic ranker, the cascade at $ratio, ${name}_$top"
        (cd "$collection" && "$wqa" evaluate --run "monolithic_${name}_$top.json.0.trec" \
          --run "cascade_${name}_$top.json.$ratio.trec" --qrels "monolithic_${name}_$top.json.qrels" --filter all \
          --metrics mrr,p@1)
        echo
      done
    done
  done
} > "$RESULTS/collection_claims.txt"
cat "$RESULTS/collection_claims.txt"

if [ "${TIMED:-0}" = 1 ]; then
  times=$(realpath "$RESULTS")/collection_times.tsv asked=$(realpath "$(open_questions_of wikiqa test)") bench=$PWD/recipes/bench
  (cd "$RUNS" && "$python" "$bench/ask.py" collection/index "$asked" bm25 "${monolithic#"$RUNS"/}" "${cascade#"$RUNS"/}" \
    "${sequence#"$RUNS"/}" $(for top in $tops; do echo "--top $top"; done) --drop-ratio 0 --drop-ratio 0.3 --drop-ratio 0.4 \
    --drop-ratio 0.5 --drop-ratio tuned --questions "${QUESTIONS:-20}" --rounds "${ROUNDS:-3}" \
    ${precision[@]+"${precision[@]}"} --out "$times")
  "$python" recipes/cascade/collection_picture.py "$table" "$times" "$RESULTS/collection.png"
fi
