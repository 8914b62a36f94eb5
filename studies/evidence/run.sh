#!/usr/bin/env bash
# run.sh DATA: run or resume the studies of this folder, then answer the paper and write docs/findings.md with them.
# Start it in a folder that holds qwen2.5-coder-1.5b.gguf; stop and start as you like. Replies that are stored beside
# this file (keys and replies, no prompts) are not asked again. The embedded model is asked anew, into a store of its own.
set -euo pipefail
data=$1
here=$(cd "$(dirname "$0")" && pwd)
flipmeter cache merge "$here/replies.jsonl" --into .flipmeter/replies.sqlite --prefer first
for study in flip-proof flip-proof-5 flip-proof-reviews flip-proof-twitter unseen calibration-twitter \
  pipelines phase0a phase0b phase1 phase2b; do
  flipmeter run "$here/qwen-$study.yaml" --data-dir "$data" --anyway
done
small=(--store .flipmeter/small.sqlite --data-dir "$data" --anyway)
for study in pipelines phase0a phase0b phase1 phase2b; do
  flipmeter run "$here/qwen-$study.yaml" -m local/smollm2-135m --out "runs/small-$study" "${small[@]}"
done
for cell in reviews-3 sst5-3 reviews-5 sst5-5; do
  flipmeter run flip-proof-local -d "${cell%-*}" --set base.cardinality="${cell#*-}" --out "runs/small-$cell" "${small[@]}"
done
declare -A of=([phase0a]=phase0a [phase0b]=phase0b [phase1]=phase1 [phase2a]=pipelines [phase2b]=phase2b)
runs=() claims=()
for phase in phase0a phase0b phase1 phase2a phase2b; do
  runs+=(--run "$phase=runs/qwen-${of[$phase]}" --run "$phase=runs/small-${of[$phase]}")
  claims+=("$phase=runs/qwen-${of[$phase]},runs/small-${of[$phase]}")
done
flipmeter paper --out runs/both-paper "${runs[@]}"
python "$here/../../benchmarks/findings.py" --write --claims "${claims[@]}" \
    phase1:words-raise-p1=runs/qwen-pipelines phase1:words-raise-p1=runs/qwen-calibration-twitter \
    phase2a:calibration-does-not-help=runs/qwen-calibration-twitter \
  --levels runs/qwen-phase1 runs/qwen-pipelines runs/qwen-calibration-twitter \
  --unseen runs/qwen-unseen runs/qwen-flip-proof \
  --fronts runs/qwen-flip-proof runs/qwen-flip-proof-5 runs/qwen-flip-proof-reviews runs/qwen-flip-proof-twitter \
    runs/small-reviews-3 runs/small-sst5-3 runs/small-reviews-5 runs/small-sst5-5
flipmeter cache export .flipmeter/replies.sqlite --out replies.jsonl --no-prompts && mv replies.jsonl "$here"
