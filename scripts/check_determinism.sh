#!/usr/bin/env bash
# The same plans, bit for bit, from g++ and clang++ at -O0 and -O3.
set -euo pipefail
cd "$(dirname "$0")/.."
work=build/determinism
mkdir -p "$work"
for compiler in g++ clang++; do
  for level in -O0 -O3; do
    "$compiler" -std=c++20 "$level" -Iinclude tests/plan_hashes.cpp -o "$work/hashes"
    "$work/hashes" >"$work/$compiler$level.txt"
    cmp "$work/g++-O0.txt" "$work/$compiler$level.txt"
    echo "$compiler $level: $(wc -l <"$work/$compiler$level.txt") plans, the same"
  done
done
