#!/usr/bin/env bash
# The main job on the shipped trace: compare strategies for 84B parameters on 2,560 GPUs, draw one step.
set -euo pipefail
cd "$(dirname "$0")/.."
orch=${ORCH:-build/release/bin/orch}
mkdir -p out
run=(--trace traces/omni-demo.jsonl.gz --model mllm-84b --cluster h100-8x400g --gpus 2560 --batch 8)

"$orch" compare "${run[@]}" --steps 5 --json out/demo.json
"$orch" simulate "${run[@]}" --steps 1 --strategy orchmllm --timeline out/demo-timeline.json >/dev/null
echo
echo "All figures:   out/demo.json"
echo "One step:      out/demo-timeline.json (open it at ui.perfetto.dev)"
