# Settings of the recipes in small, which source this file; recipes that they call inherit them.
if [ "${SMOKE:-0}" != 1 ]; then
  export RUNS=${RUNS:-runs/dcbert_minilm} SQUAD=${SQUAD:-${DATA:-data}/squad_open_small} ARCHIVE=${ARCHIVE:-${DATA:-data}/dev-v2.0.json.gz}
  export ENCODER=${ENCODER:-minilm} EXITS=${EXITS:-2,4,6} INTERACTIONS=${INTERACTIONS:-1 2 3} SEEDS=${SEEDS:-0 1 2}
  export READER_ENCODER=${READER_ENCODER:-$ENCODER}
  # With retrieved negatives alone at 1e-4, or a rate of 2e-4 or above, the loss of DC-BERT stayed at that of a constant score. It
  # falls with random negatives beside them, and more where the encoders have a tenth of the rate: logs/README.md.
  export TRAIN_TOP=${TRAIN_TOP:-10} RANDOM_DOCUMENTS=${RANDOM_DOCUMENTS:-2} DEV_TOP=${DEV_TOP:-3} TOP=${TOP:-40}
  # Rankers of a concatenation read a pair at half the speed: they have two thirds of the epochs, in batches half as large.
  export EPOCHS=${EPOCHS:-2} TOKENS=${TOKENS:-4096} APART_EPOCHS=${APART_EPOCHS:-3} APART_TOKENS=${APART_TOKENS:-8192}
  export APART_RATE=${APART_RATE:-3e-4} ENCODER_RATE=${ENCODER_RATE:-0.1}
  export LEARNING_RATE=${LEARNING_RATE:-6e-5} READER_RATE=${READER_RATE:-1e-4} READER_EPOCHS=${READER_EPOCHS:-4} DOCUMENT_PAIRS=${DOCUMENT_PAIRS:-8} UPDATE_TOKENS=${UPDATE_TOKENS:-0}
  export PRECISION=${PRECISION:-bfloat16} RANK_PRECISION=${RANK_PRECISION:-bfloat16}
else
  export RANDOM_DOCUMENTS=1
fi
export CORPORA=squad
. "$(dirname "${BASH_SOURCE[0]}")/settings.bash"
if [ "${SMOKE:-0}" != 1 ] && [ ! -e "$SQUAD/stats.json" ]; then  # collection: the script that makes it, and its options
  [ -n "${collection-}" ] || collection=(squad_open.py --archive "$ARCHIVE" --titles recipes/dcbert/articles.txt --articles 10,3,3)
  "$python" data_scripts/"${collection[@]}" --out "$SQUAD"
fi
title_of() { case ${1#apart_} in
  bert) echo "re-ranker" ;;
  int8) echo "re-ranker, int8" ;;
  student) echo "student of $STUDENT_DEPTH layers" ;;
  dcbert_*) echo "DC-BERT, K = ${1##*_}" ;;
  comparison) echo "DC-BERT, K = 1, comparing classifier" ;;
  linear) echo "DC-BERT-Linear" ;;
  lstm) echo "DC-BERT-LSTM" ;;
  esac; }
