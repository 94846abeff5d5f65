# Settings and functions of the recipes of MSPP (Di Liello et al. 2022), beside those of recipes/settings.sh.
paper=mspp
if [ "${SMOKE:-0}" = 1 ]; then
  SEEDS=${SEEDS:-0 1} LENGTH=24 PRETRAIN_RATE=1e-3 PRETRAIN_WARMUP=1 RATE=1e-3 WARMUP_UPDATES=1
else
  RUNS=${RUNS:-runs/mspp_paper} SEEDS=${SEEDS:-0 1 2 3 4}
fi
# Sections 3.2 and B.1; batches are of joint inputs, or of pairs.
: "${PRETRAIN_RATE:=5e-5}" "${PRETRAIN_CLIP:=1.0}" "${ASNQ_BATCH:=512}" "${BATCH:=32}" "${RATE:=2e-6}" "${DECAY:=0.01}"
: "${CLIP:=1.0}" "${WARMUP_UPDATES:=1000}" "${POSITIONS:=slots}" "${MISSING:=absent}" "${ROW_DEVIATION:=0.02}" "${AGGREGATION:=mean}"
PRETRAIN_UPDATES=${PRETRAIN_UPDATES:-100000} PRETRAIN_BATCH=${PRETRAIN_BATCH:-4096} PRETRAIN_WARMUP=${PRETRAIN_WARMUP:-10000}
ORDER=${ORDER:-shuffled}                # of candidates in ranking, as in the authors' code; the paper does not say
MARKS=${MARKS:-start}                   # first token of a candidate: start, as in the authors' code, or separator
MASK_RATE=${MASK_RATE:-0.15}            # of the pre-training; 0 for MSPP alone, beyond the paper
ASNQ_RATE=${ASNQ_RATE:-1e-5} ASNQ_WARMUP=${ASNQ_WARMUP:-5000} ASNQ_EPOCHS=${ASNQ_EPOCHS:-6} EPOCHS=${EPOCHS:-40}
PATIENCE=${PATIENCE:-8}                 # of the code; the paper only says that it stops early
TOKENS=${TOKENS:-6144}                  # of a mini-batch on each device: 16 joint inputs, which fit into 16 GB
PRETRAIN_TOKENS=${PRETRAIN_TOKENS:-$TOKENS}
TRECQA_DEV=${TRECQA_DEV:-${TRECQA:-${DATA:-data}/trecqa}/dev-clean.jsonl}
. "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"

K=${K:-5} LENGTH=${LENGTH:-64}          # candidates of an input, tokens of a segment
DOCUMENTS=${DOCUMENTS:-$DATA/pretraining}                    # a folder of files of data_scripts/paragraphs.py
HELD_OUT=${HELD_OUT:-}                  # documents to measure the pre-training on; none at the paper's scale
DRAWS=${DRAWS:-1}                       # examples that are drawn of each paragraph
CORPORA=${CORPORA:-asnq wikiqa trecqa}
SYSTEMS=${SYSTEMS:-joint_ie joint_ae mspp_ie mspp_ae}       # beside the pairwise model
ASNQ_EVAL_EVERY=${ASNQ_EVAL_EVERY:-2000}                    # ours: updates between two evaluations on ASNQ's dev
METRICS=p@1,map,mrr
TEST_FILTER=clean                       # of dev and test (appendix A.2); the training questions are taken as they are

# A corpus such as wikiqa@2 is the first five candidates of each question, by the pairwise model of seed 2.
train_of() { if [ "$1-${system:-}" = asnq-pairwise ]; then echo "$RUNS/asnq.store"; else split_of "$1" train; fi; }
split_of() {  # CORPUS SPLIT
  local folder=${1^^} file=${1^^}_${2^^}
  case $1 in *@*) echo "$(first_of "$1")/$2.jsonl" ;; *) echo "${!file-${!folder}/$2.jsonl}" ;; esac
}
filter_of() { echo all; }
counted_of() { case $1 in *@*) echo all ;; *) echo "$TEST_FILTER" ;; esac; }  # of dev and test
rate_of() { case $1 in asnq*) echo "$ASNQ_RATE" ;; *) echo "$RATE" ;; esac; }
# Table 2's groups of ASNQ, one a question, are 112 updates an epoch; the paper is silent about their warm-up.
schedule_of() { case $1 in
  asnq@*) echo "--epochs $ASNQ_EPOCHS" ;;
  asnq*) echo "--epochs $ASNQ_EPOCHS --eval-every $ASNQ_EVAL_EVERY" ;;
  *) echo "--epochs $EPOCHS" ;;
  esac; }
warmup_of() { case $1 in
  asnq@*) echo "--warmup-share 0.1" ;;
  asnq*) echo "--warmup-updates $ASNQ_WARMUP" ;;
  *) echo "--warmup-updates $WARMUP_UPDATES" ;;
  esac; }
# Tokens of an update, of so many joint inputs as the longest can be; a pair of ASNQ has 67 padded tokens, one of WikiQA 43.
update_tokens() {  # SYSTEM CORPUS
  local batch=$BATCH pair=43
  if [ "${SMOKE:-0}" = 1 ]; then echo "$UPDATE_TOKENS"; return; fi
  case $2 in asnq*) batch=$ASNQ_BATCH pair=67 ;; esac
  if [ "$1" = pairwise ]; then echo $((batch * pair)); else echo $((batch * LENGTH * (K + 1))); fi
}
batch_tokens() { echo "$TOKENS"; }      # SYSTEM CORPUS: of a mini-batch on each device
joint_options() {  # [DEVIATION]: of joint models and their pre-training; that of the question's row of token types
  echo "--k $K --segment-length $LENGTH --positions $POSITIONS --missing $MISSING --marks $MARKS" \
    "--type-initialisation ${1:-$ROW_DEVIATION}"
}
head_of() { case $1 in *_ae) echo AE_k ;; *) echo IE_k ;; esac; }

pretrain() {  # [masked_]HEAD: section 3.4, MSPP and masked tokens, or masked tokens alone, from the plain encoder
  local run=$RUNS/mspp/pretrained_$1 examples=$RUNS/mspp/examples losses=(--mask-rate "$MASK_RATE")
  if [ -e "$run/model.params" ]; then return; fi
  prepare_documents
  [ -e "$examples/stats.json" ] ||
    "$python" data_scripts/mspp_examples.py --train "$DOCUMENTS" ${HELD_OUT:+--dev "$HELD_OUT"} --out "$examples" \
      --hard $((K - 3)) --easy 2 --draws "$DRAWS"
  case $1 in
    masked_*) losses=(--mask-rate 0.15 --mspp-weight 0) ;;  # without --dev, whose figures are those of the candidates
    *) losses+=(${HELD_OUT:+--dev "$examples/dev.jsonl"}) ;;
  esac
  echo "== $run"
  "$wqa" train mspp_pretraining --encoder "$ENCODER" --train "$examples/train.jsonl" --out "$run" --resume \
    --long-questions truncate --head "${1#masked_}" $(joint_options) --learning-rate "$PRETRAIN_RATE" --weight-decay 0.01 \
    --clip-norm "$PRETRAIN_CLIP" "${losses[@]}" $(pretraining_schedule) --tokens-per-batch "$PRETRAIN_TOKENS" --ctx "$CTX" \
    --precision "$PRECISION" ${limits[@]+"${limits[@]}"}
}
pretraining_schedule() {
  echo "--warmup-updates $PRETRAIN_WARMUP"
  [ "${SMOKE:-0}" = 1 ] || echo "--epochs 100000 --max-updates $PRETRAIN_UPDATES" \
    "--tokens-per-update $((PRETRAIN_BATCH * LENGTH * (K + 1)))"
}
prepare_documents() {
  if [ "${SMOKE:-0}" = 1 ]; then
    DOCUMENTS=$RUNS/mspp/documents/train.jsonl HELD_OUT=$RUNS/mspp/documents/dev.jsonl
    [ -e "$DOCUMENTS" ] || "$python" recipes/mspp/builtin_corpora.py "$RUNS/mspp"
  fi
}

# A system is pairwise, joint_ie or joint_ae from the plain encoder, joint_row_ie with the question's row of token types from
# N(0, 1), mspp_ie or mspp_ae from the pre-training with that head, or masked_ie from that of masked tokens alone.
run_of() { echo "$RUNS/mspp/$1_$2_seed$3"; }                # SYSTEM CORPUS SEED
title_of() { case $1 in
  pairwise) echo "Pairwise RoBERTa-Base" ;;
  joint_ie) echo "Joint RoBERTa-Base, FT IE_k" ;;
  joint_ae) echo "Joint RoBERTa-Base, FT AE_k" ;;
  mspp_ie) echo "Joint MSPP IE_k, FT IE_k" ;;
  mspp_ae) echo "Joint MSPP AE_k, FT AE_k" ;;
  *) echo "$1" ;;
  esac; }
fit() {  # SYSTEM CORPUS SEED: trains it where that was not done
  local name=$1 corpus=$2 row='' pretraining options=()
  if [ -e "$(run_of "$@")/model.params" ]; then return; fi
  if [[ $corpus == *@* ]]; then rank_first "$corpus"; fi
  case $name in
    pairwise)
      if [ "$corpus" = asnq ]; then tokenize_asnq; fi
      options=(pairwise "$corpus" --encoder "$ENCODER") ;;
    mspp_* | masked_*)
      pretraining=$(head_of "$name")
      if [[ $name == masked_* ]]; then pretraining=masked_$pretraining; fi
      pretrain "$pretraining"
      options=(mspp "$corpus" --init "$RUNS/mspp/pretrained_$pretraining" --head "$(head_of "$name")" $(joint_options 0)
        --order "$ORDER") ;;
    *)
      if [[ $name == *_row_* ]]; then row=1; fi
      options=(mspp "$corpus" --encoder "$ENCODER" --head "$(head_of "$name")" $(joint_options $row) --order "$ORDER") ;;
  esac
  TOKENS=$(batch_tokens "$name" "$corpus") UPDATE_TOKENS=$(update_tokens "$name" "$corpus") train \
    "mspp/${name}_${corpus}_seed$3" "${options[@]}" --seed "$3" --learning-rate "$(rate_of "$corpus")" \
    --weight-decay "$DECAY" --clip-norm "$CLIP" $(schedule_of "$corpus") --dev-filter "$(counted_of "$corpus")"
}
figures() {  # SYSTEM CORPUS SEED: of a system on a corpus, all candidates of a question in groups of k
  local run; run=$(run_of "$@")
  fit "$@"
  TEST_FILTER=$(counted_of "$2") evaluate "$run/test.json" "$2" "$run"
}

# Re-ranking (Tables 2 and 7).
first_of() { echo "$RUNS/mspp/first/$1"; }                  # CORPUS@SEED
rank_first() {  # CORPUS@SEED: the pairwise model's first five, of training, dev and test questions
  local corpus=${1%@*} seed=${1#*@} out run; out=$(first_of "$1") run=$(run_of pairwise "${1%@*}" "${1#*@}")
  fit pairwise "$corpus" "$seed"
  if [ "$out/test.jsonl" -nt "$run/model.params" ]; then return; fi
  echo "== the first $K of $run"
  "$python" recipes/mspp/first.py "$run" --keep "$K" --ctx "$device" \
    --questions "$(train_of "$corpus")" "$(filter_of "$corpus")" "$out/train.jsonl" \
    --questions "$(dev_of "$corpus")" "$TEST_FILTER" "$out/dev.jsonl" \
    --questions "$(test_of "$corpus")" "$TEST_FILTER" "$out/test.jsonl"
}

# Tables. A row collects the figures of a system over its seeds, and the claims compare the systems of rows.
rows=()
row() {  # TITLE FIGURES.json: % stands for a seed
  local seed
  rows+=(--row "$1") systems+=(--system "$1")
  for seed in $SEEDS; do
    rows+=("${2//%/$seed}")
    systems+=("$(ls "${2//%/$seed}".*.trec)")
  done
}
rows_of() {  # CORPUS [CORPUS-OF-JOINT FIGURES]: of the pairwise model and of all systems; with nothing before them
  local name
  rows=() systems=()
  row "$(title_of pairwise)" "$(run_of pairwise "$1" %)/test.json"
  for name in $SYSTEMS; do row "$(title_of "$name")" "$(run_of "$name" "${2:-$1}" %)${3:-/test.json}"; done
}
write_rows() {  # TABLE CORPUS [METRICS]
  "$python" recipes/rows.py "$1" "$2" "${3:-$METRICS},questions,seeds" "${rows[@]}"
}
claims() {  # FILE CORPUS: each system beside the pairwise model, and beside the same with less pre-training
  local name less pairs=(--pair "$(title_of pairwise)")
  for name in $SYSTEMS; do pairs+=("$(title_of "$name")"); done
  for name in $SYSTEMS; do
    for less in $SYSTEMS; do
      case $less-${name%%_*} in "joint_${name#*_}-masked" | "joint_${name#*_}-mspp" | "masked_${name#*_}-mspp")
        pairs+=(--pair "$(title_of "$less")" "$(title_of "$name")") ;;
      esac
    done
  done
  keep_output "$1" "$python" recipes/claims.py "$(run_of pairwise "$2" "$FIRST_SEED")/test.json.qrels" "$METRICS" "${systems[@]}" "${pairs[@]}" > /dev/null
}
table_of() {  # TABLE CORPUS CLAIMS: figures of all systems, all candidates of a question in groups of k
  local name seed
  for name in pairwise $SYSTEMS; do
    for seed in $SEEDS; do figures "$name" "$2" "$seed"; done
  done
  rows_of "$2"
  write_rows "$1" "$2"
  claims "$3" "$2"
}
# TABLE FULL-TABLE CORPUS CLAIMS: re-ranking on the first five alone, but the pairwise model's own row; on all candidates.
rerank_tables() {
  local corpus=$3 seed name first run
  for seed in $SEEDS; do
    first=$(run_of pairwise "$corpus" "$seed")
    figures pairwise "$corpus" "$seed"
    rank_first "$corpus@$seed"
    TEST_FILTER=all evaluate "$(first_of "$corpus@$seed")/pairwise.test.json" "$corpus@$seed" "$first"
    for name in $SYSTEMS; do
      run=$(run_of "$name" "$corpus@$seed" "$seed")
      figures "$name" "$corpus@$seed" "$seed"
      [ "$run.sequence.json" -nt "$run/model.params" ] && [ "$run.sequence.json" -nt "$first/model.params" ] ||
        echo "{\"rankers\": [\"$(realpath "$first")\", \"$(realpath "$run")\"], \"keep\": $K}" > "$run.sequence.json"
      TEST_FILTER=$(counted_of "$corpus") evaluate "$run.sequence.test.json" "$corpus" "$run.sequence.json"
    done
  done
  rows_of "$corpus" "$corpus@%"
  row "$(title_of pairwise), its first five alone" "$(first_of "$corpus@%")/pairwise.test.json"
  write_rows "$1" "$corpus"
  rows_of "$corpus" "$corpus@%" .sequence.test.json
  write_rows "$2" "$corpus"
  claims "$4" "$corpus"
}
