#!/usr/bin/env bash
# The checkpoints that the authors released, for whoever has them: converts each file of recipes/checkpoints/files.tsv that lies
# in the folder CHECKPOINTS, ranks the test questions of its corpus, and lays P@1, MAP and MRR beside the row of the paper
# (released.tsv; released.py says what its three rows of a checkpoint count). TANDA's files are tars, the Multiple-Heads Student's
# cerberus_model.pt, whose encoder is ENCODERS/electra-base. MSPP's directories have no published names: joint_ie_k and joint_ae_k
# are those of the pre-training, joint_ie_k_wikiqa and the like what the authors' code fine-tunes from them. TANDA's rows for ASNQ
# are other trainings of the same encoder; tanda.tsv has the MAP of its abstract and the MRR beside it on the leaderboards.
#   CHECKPOINTS=downloads recipes/checkpoints/released.sh
paper=checkpoints
. "$(dirname "$0")/../settings.sh"
here=recipes/checkpoints ENCODERS=${ENCODERS:-encoders} table=${TABLE:-$RESULTS/released.tsv}
if [ "${SMOKE:-0}" = 1 ]; then
  CHECKPOINTS=${CHECKPOINTS:-$RUNS/checkpoints/files} COUNTED=builtin
  if [ ! -e "$CHECKPOINTS" ]; then
    DEPTHS=3 recipes/tanda/transfer.sh
    "$wqa" export "$RUNS/tanda/transfer_3" "$RUNS/checkpoints/models" --format huggingface
    mkdir -p "$CHECKPOINTS"
    tar -cf "$CHECKPOINTS/tanda_bert_base_asnq_wikiqa.tar" -C "$RUNS/checkpoints" models
  fi
fi
CHECKPOINTS=${CHECKPOINTS:-checkpoints} TEST_FILTER=no-all-negative

present=0
while IFS=$'\t' read -r file corpus encoder published row; do
  if [ ! -e "$CHECKPOINTS/$file" ]; then continue; fi
  present=$((present + 1)) name=${file%/cerberus_model.*} data=$(test_of "$corpus")
  run=$RUNS/checkpoints/${name%.tar}
  "$python" $here/released.py count "$data" "${COUNTED:-$corpus}"
  if [ ! -e "$run/model.params" ]; then
    echo "== $file"
    case $encoder in -) options=() ;; *) options=(--encoder "$ENCODERS/$encoder") ;; esac
    "$wqa" convert "$CHECKPOINTS/$file" "$run" ${options[@]+"${options[@]}"}
  fi
  evaluate "$run/test.json" "$corpus" "$run" --precision "$PRECISION"
  "$python" $here/released.py row "$table" "$run/test.json" "$file" "$corpus" "$published" "$row"
done < <(tail -n +2 $here/files.tsv)
[ $present != 0 ] || fail "$CHECKPOINTS has none of the files of $here/files.tsv; expected CHECKPOINTS=DIR with some of them"
cat "$table"
