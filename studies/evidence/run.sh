#!/usr/bin/env bash
# run.sh DATA: run or resume the studies of this folder, then answer the paper with them.
# Start it in a folder that holds qwen2.5-coder-1.5b.gguf; stop and start as you like.
set -euo pipefail
data=$1
here=$(cd "$(dirname "$0")" && pwd)
for study in qwen-phase1 qwen-pipelines; do
  flipmeter run "$here/$study.yaml" --data-dir "$data" --anyway
done
flipmeter paper --run phase1=runs/qwen-phase1 --run phase2a=runs/qwen-pipelines --out runs/qwen-paper
