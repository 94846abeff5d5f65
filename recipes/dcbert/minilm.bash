# Settings of the recipes in small, which source this file; recipes that they call inherit them.
if [ "${SMOKE:-0}" != 1 ]; then
  data=${DATA:-data}
  export RUNS=${RUNS:-runs/dcbert_minilm} SQUAD=${SQUAD:-$data/squad_open} ARCHIVE=${ARCHIVE:-$data/dev-v2.0.json.gz}
  export ENCODER=minilm READER_ENCODER=minilm EXITS=2,4,6 INTERACTIONS="1 2 3" SEEDS=${SEEDS:-0 1 2}
  # By arithmetic two cores train fourteen rankers in an hour and a half: 1,786 questions with four documents of some 190
  # tokens are 1.4 million tokens, once. The dev questions choose nothing then; their figures are those of three documents.
  export TRAIN_TOP=${TRAIN_TOP:-4} DEV_TOP=${DEV_TOP:-3} TOP=${TOP:-40}
  export EPOCHS=${EPOCHS:-1} LEARNING_RATE=${LEARNING_RATE:-5e-5} WARMUP=${WARMUP:-100}
  export TOKENS=${TOKENS:-4096} UPDATE_TOKENS=0 PRECISION=${PRECISION:-bfloat16} RANK_PRECISION=${RANK_PRECISION:-bfloat16}
fi
export CORPORA=squad
. recipes/dcbert/settings.bash
if [ "${SMOKE:-0}" != 1 ] && [ ! -e "$SQUAD/train.documents.jsonl" ]; then
  "$python" data_scripts/squad_open.py --archive "$ARCHIVE" --articles 10,3,3 --out "$SQUAD"
fi
