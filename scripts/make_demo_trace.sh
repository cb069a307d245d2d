#!/usr/bin/env bash
# Regenerates traces/omni-demo.jsonl.gz from its profile:  scripts/make_demo_trace.sh [OUT] [ORCH]
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-traces/omni-demo.jsonl.gz}
orch=${2:-build/release/bin/orch}
"$orch" trace generate --profile traces/profiles/omni-demo.toml --samples 200000 --seed 1 "$out"
