#!/usr/bin/env bash
# run.sh DATA: run or resume the studies of this folder, then answer the paper and write docs/findings.md with them.
# Start it in a folder that holds qwen2.5-coder-1.5b.gguf; stop and start as you like. Replies that are stored beside
# this file (keys and replies, no prompts) are not asked again. qwen-flip-proof-5 has not been asked
# to its end.
set -euo pipefail
data=$1
here=$(cd "$(dirname "$0")" && pwd)
flipmeter cache merge "$here/replies.jsonl" --into .flipmeter/replies.sqlite --prefer first
for study in flip-proof flip-proof-reviews unseen calibration pipelines phase0a phase0b phase1 phase2b; do
  flipmeter run "$here/qwen-$study.yaml" --data-dir "$data" --anyway
done
for cell in reviews-3 sst5-3 reviews-5 sst5-5; do
  flipmeter run flip-proof-local -d "${cell%-*}" --data-dir "$data" --set base.cardinality="${cell#*-}" \
    --out "runs/small-$cell" --anyway
done
flipmeter paper --out runs/qwen-paper --run phase0a=runs/qwen-phase0a --run phase0b=runs/qwen-phase0b \
  --run phase1=runs/qwen-phase1 --run phase2a=runs/qwen-pipelines --run phase2b=runs/qwen-phase2b
python "$here/../../benchmarks/findings.py" --write \
  --claims phase0a=runs/qwen-phase0a phase0b=runs/qwen-phase0b phase1=runs/qwen-phase1 \
    phase1:words-raise-p1=runs/qwen-calibration phase2a:calibration-does-not-help=runs/qwen-calibration \
    phase2a:averaging-keeps-accuracy=runs/qwen-calibration phase2a:pairwise-hurts-both=runs/qwen-pipelines \
    phase2a:listwise-hurts=runs/qwen-pipelines phase2a:listwise-compare-balances=runs/qwen-pipelines \
    phase2a:no-aggregator-helps=runs/qwen-pipelines phase2b=runs/qwen-phase2b \
  --levels runs/qwen-phase1 runs/qwen-calibration runs/qwen-pipelines --unseen runs/qwen-unseen runs/qwen-flip-proof \
  --fronts runs/qwen-flip-proof runs/qwen-flip-proof-reviews runs/small-reviews-3 runs/small-sst5-3 \
    runs/small-reviews-5 runs/small-sst5-5
flipmeter cache export .flipmeter/replies.sqlite --out "$here/replies.jsonl" --no-prompts
