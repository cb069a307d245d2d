#!/usr/bin/env bash
# Runs the benchmarks and writes bench/results:  scripts/bench.sh [balance|fluid|microbatch|movement|placement|sim|split|step|trace|method|solvers|validation|claims|runtime|two-level ...]
# Medians of repetitions; ratios are computed between benchmarks of one run (scripts/bench_report.py).
set -euo pipefail
cd "$(dirname "$0")/.."
what=("$@")
[ ${#what[@]} -gt 0 ] || what=(balance fluid microbatch movement placement sim split step trace method solvers validation claims runtime two-level)
scripts/build.sh bench >/dev/null
for name in "${what[@]}"; do
  if [ "$name" = solvers ]; then
    build/bench/bin/solver_table "${ORCHMLLM_SHARED:-../shared}/traces" >bench/results/solvers.json
  elif [ "$name" = runtime ]; then
    for ranks in 2 4 8; do
      mpirun --allow-run-as-root --oversubscribe -np "$ranks" build/bench/bin/bench_runtime >build/bench/runtime-"$ranks".json
    done
    python3 -c 'import json, sys; json.dump(sum((json.load(open(f)) for f in sys.argv[1:]), []), sys.stdout, indent=1)' \
      build/bench/runtime-{2,4,8}.json >bench/results/runtime.json
  elif [ "$name" = two-level ]; then
    # Network namespaces and tc: as root.
    /usr/bin/python3 -B tests/cli/two_level.py build/bench/bin/orch-run . bench/results/two-level.json
  elif [ "$name" = method ]; then
    for ranks in 64 320 2560; do
      build/bench/bin/orch plan --trace traces/omni-demo.jsonl.gz --model mllm-84b --cluster h100-8x400g --gpus "$ranks" \
        --batch 32 --steps 3 --explain --json build/bench/method-"$ranks".json >/dev/null
    done
    python3 -c 'import json, sys; json.dump([json.load(open(f)) for f in sys.argv[1:]], sys.stdout, indent=1)' \
      build/bench/method-{64,320,2560}.json >bench/results/method.json
  elif [ "$name" = validation ]; then
    ORCHMLLM_DATA=sim build/bench/bin/orch validate --runs sim/validation/runs.csv --memory sim/validation/memory.csv \
      --json bench/results/validation.json >/dev/null
  elif [ "$name" = claims ]; then
    scripts/claims.sh build/bench/bin/orch bench/results/claims.json
  else
    repetitions=5
    [ "$name" != sim ] || repetitions=3  # of minutes
    build/bench/bin/bench_"$name" --benchmark_repetitions=$repetitions --benchmark_report_aggregates_only=true \
      --benchmark_out=bench/results/"$name".json --benchmark_out_format=json >/dev/null
    # The machine's name says nothing about the figures.
    sed -i '/"host_name"/d' bench/results/"$name".json
  fi
done
python3 scripts/bench_report.py
