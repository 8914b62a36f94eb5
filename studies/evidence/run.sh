#!/usr/bin/env bash
# run.sh DATA: run or resume studies of this folder (the others have not been asked yet), then answer the paper and write docs/findings.md with them.
# Start it in a folder that holds qwen2.5-coder-1.5b.gguf; stop and start as you like. Replies that are stored beside
# this file (keys and replies, no prompts) are not asked again.
set -euo pipefail
data=$1
here=$(cd "$(dirname "$0")" && pwd)
flipmeter cache merge "$here/replies.jsonl" --into .flipmeter/replies.sqlite --prefer first
for study in qwen-calibration qwen-phase1 qwen-words qwen-lists; do
  flipmeter run "$here/$study.yaml" --data-dir "$data" --anyway
done
flipmeter paper --run phase1=runs/qwen-phase1 --run phase2a=runs/qwen-calibration --out runs/qwen-paper
python "$here/../../benchmarks/findings.py" --write \
  --claims phase1=runs/qwen-phase1 phase1:words-raise-p1=runs/qwen-calibration phase2a=runs/qwen-calibration \
    phase2a=runs/qwen-lists \
  --levels runs/qwen-phase1 runs/qwen-calibration runs/qwen-lists --fronts runs/qwen-words
flipmeter cache export .flipmeter/replies.sqlite --out "$here/replies.jsonl" --no-prompts
