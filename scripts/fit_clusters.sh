#!/usr/bin/env bash
# Fits the software profiles under sim/clusters to the runs of sim/validation/runs.csv that are marked "calibrate", in
# place. Order matters: profiles inherit what earlier ones have found. Then run scripts/validate.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
export ORCHMLLM_DATA=sim
orch=${ORCH:-build/release/bin/orch}
fit() {
  echo "== $1"
  "$orch" fit --runs sim/validation/runs.csv --cluster "sim/clusters/$1.toml" --coefficient "$2" --out "build/$1.toml"
  mv "build/$1.toml" "sim/clusters/$1.toml"
}
# The two GPUs' products, each on its largest set of runs; the base files then say the same.
fit megatron-h100 gpu.gemm.half_depth,software.tensor_overlap
fit mosaic-a100 gpu.gemm.half_depth,gpu.attention_scale,software.collective_interference
for pair in h100-8x400g:megatron-h100 a100-8x200g:mosaic-a100; do
  value=$(sed -n 's/^half_depth = \([0-9.e+]*\).*/\1/p' "sim/clusters/${pair#*:}.toml")
  sed -i "s/^half_depth = [0-9.e+]*/half_depth = $value/" "sim/clusters/${pair%:*}.toml"
done
fit megatron-0.8-h100 gpu.gemm.sustained
fit maxtext-h100 gpu.gemm.sustained
fit mosaic-h100 gpu.attention_scale,software.collective_interference
fit titan-a100 software.elementwise_traffic,software.collective_interference
value=$(sed -n 's/^elementwise_traffic = \([0-9.]*\).*/\1/p' sim/clusters/titan-a100.toml)
sed -i "s/^elementwise_traffic = [0-9.]*/elementwise_traffic = $value/" sim/clusters/titan-h100.toml
fit titan-h100 gpu.gemm.sustained,gpu.gemm.sustained_fp8,gpu.attention_scale
fit automodel-h100 software.collective_interference
fit megatron-a100 gpu.gemm.sustained
