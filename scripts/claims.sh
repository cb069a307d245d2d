#!/usr/bin/env bash
# The published method's claims at 2,560 H100s on a real blend:  scripts/claims.sh ORCH RESULT.json
# Texts are cut to 8,192 tokens, encoders' phases move single units (a sample of the blend has up to 49 images), shard
# groups of 256 GPUs. The batch is the largest that `orchmllm` can train with; all strategies then run with it.
set -euo pipefail
cd "$(dirname "$0")/.."
orch=$1
result=$2
trace=${ORCHMLLM_SHARED:-../shared}/traces/omni-mix.jsonl.gz
[ -f "$trace" ] || { echo "$trace: not there; set ORCHMLLM_SHARED" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run=(--trace "$trace" --max-text 8192 --granularity unit --cluster h100-8x400g --gpus 2560 --steps 10)
for model in mllm-10b mllm-18b mllm-84b; do
  "$orch" simulate "${run[@]}" --model $model --strategy orchmllm --shard 256 --find-batch --json "$work/$model.found" >/dev/null
  batch=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["batch"])' "$work/$model.found")
  for strategy in none pre-balance llm-only megatron orchmllm orchmllm-allgather movement movement+split; do
    "$orch" simulate "${run[@]}" --model $model --strategy $strategy --shard 256 --batch "$batch" \
      --json "$work/$model.$strategy.json" >/dev/null || [ $? -eq 3 ]
    echo "$model $strategy, batch $batch" >&2
  done
done
python3 - "$work" "$result" <<'PY'
import json, pathlib, sys
rows = []
for model in ("mllm-10b", "mllm-18b", "mllm-84b"):
    for strategy in ("none", "pre-balance", "llm-only", "megatron", "orchmllm", "orchmllm-allgather", "movement", "movement+split"):
        path = pathlib.Path(sys.argv[1], f"{model}.{strategy}.json")
        if not path.exists():
            rows.append({"model": model, "name": strategy, "infeasible": True})
            continue
        run = json.loads(path.read_text())
        run.pop("steps")
        rows.append(run)
pathlib.Path(sys.argv[2]).write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
PY
