#!/usr/bin/env bash
# The same plans, bit for bit, from g++ and clang++ at -O0 and -O3.
set -euo pipefail
cd "$(dirname "$0")/.."
work=build/determinism
mkdir -p "$work"
hashes() {
  "$1" -std=c++20 "$2" -Iinclude tests/plan_hashes.cpp -o "$work/hashes-$1$2"
  "$work/hashes-$1$2" >"$work/$1$2.txt"
}
for level in -O0 -O3; do
  hashes g++ "$level" &
  other=$!
  hashes clang++ "$level"
  wait "$other"
done
for plans in g++-O3 clang++-O0 clang++-O3; do
  cmp "$work/g++-O0.txt" "$work/$plans.txt"
  echo "g++ -O0 and ${plans/-O/ -O}: $(wc -l <"$work/$plans.txt") plans, the same"
done
