#!/usr/bin/env bash
# Runs the demo and puts its figures where README and CI look for them: bench/results/demo.json and README's table.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p out
scripts/demo.sh | tee out/demo.txt
cp out/demo.json bench/results/demo.json
python3 - <<'PY'
import re
rows = [line for line in open("out/demo.txt").read().splitlines() if re.match(r"(strategy|-----|none|llm-only|orchmllm|movement)", line)]
text = open("README.md").read()
open("README.md", "w").write(re.sub(r"```\nstrategy .*?```", lambda _: "```\n" + "\n".join(rows) + "\n```", text, count=1, flags=re.S))
PY
