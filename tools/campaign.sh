#!/usr/bin/env bash
# Measures the grids of results/<device> on this machine's GPU, and runs the tests of what they rely on. Called again, the grids, best, ranks
# and the alarms resume; the other parts begin anew. The exit code is 1 if a part failed.
#
#   tools/campaign.sh OUT [PART...]
#
# Without parts it runs, in this order: tests clock settling lists compile kernels magi long seeds shapes equal windows sparse selected
# parallel best counters ranks energy alarms. `check` has those of the tests that are about the check; `again` measures 32K tokens of the
# paper's grid a second time. STOP_AFTER=S ends each grid after S seconds (exit code 3: not complete). `longca merge results/<device>/NAME OUT/NAME
# --pack` keeps a grid. The longer lengths go to the journal of the paper's grid.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?give a folder for the results: tools/campaign.sh OUT [PART...]}
shift
every="tests clock settling lists compile kernels magi long seeds shapes equal windows sparse selected parallel best counters ranks energy alarms"
parts=${*:-$every}
stop=${STOP_AFTER:+--stop-after $STOP_AFTER}
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
longca="$python -m longca"
mkdir -p "$out"

tests()    { $python -m pytest -q -m gpu -n 10 tests/kernels tests/bench --deselect tests/bench/clock/test_clock_gpu.py; }
check()    { $python -m pytest -q -m gpu -n 4 tests/bench/check tests/bench/one_device; }
parallel() { $python -m pytest -q -m gpu -n 6 tests/parallel; }
clock()    { $python -m pytest -q -m gpu tests/bench/clock/test_clock_gpu.py && $python benchmarks/clock_accuracy.py; }  # with nothing beside it
settling() { $python benchmarks/settling.py; }
lists()    { $python benchmarks/block_lists.py; }
kernels()  { $longca run paper-kernel --out "$out/paper-kernel" $stop; }
long()     { $longca run paper-kernel --kernels $near --seqlens 64K,96K,128K $settled --out "$out/paper-kernel" $stop; }
seeds()    { $longca run paper-kernel --kernels $nearest --masks $documents --seqlens 8K,32K,128K --seeds 5 $settled --out "$out/seeds" $stop; }
equal()    { $longca run paper-kernel --kernels $nearest,fa4:native,cudnn --seqlens 32K --heads 64:64 $settled --out "$out/equal-heads" $stop; }
again()    { $longca run paper-kernel --kernels $near --seqlens 32K --clock warmup_s=.15,budget_s=.6 --out "$out/again" $stop; }
best()     { $python benchmarks/best_of_all.py --out "$out/best_of_all.jsonl" $stop; }
counters() { $python benchmarks/counters.py --out "$out/counters.jsonl" --table "$out/counters.md"; }  # needs ncu
ranks()    { $python benchmarks/ranks_on_one_gpu.py --out "$out/ranks_on_one_gpu.jsonl"; }
alarms()   { $python benchmarks/compare_false_alarms.py --out "$out/alarms"; }

# Those near the fastest on most masks at 32K and 48K; sdpa:cudnn is left out, as it runs the kernel of cudnn. Calls of the slowest take seconds at 128K.
near=fa3,fa4:native,fa4:varlen,fa4:bands,band_cute,cudnn_flex:rows,cudnn_flex:documents,cudnn,flex
nearest=fa3,fa4:varlen,fa4:bands,band_cute,cudnn_flex:rows,cudnn_flex:documents
# The suite's clock must fit 3,024 cells into 12 minutes. Longer calls get a longer warm-up, and five samples up to 200 ms.
settled="--clock warmup_s=.1,budget_s=.25"
documents=full_document,causal_document,share_question,causal_blockwise,prefix_lm_document,block_causal_document

# Beyond 32K only documents: on the other masks the paper's grid has the same calls.
magi() {
    local failed=0
    $longca run magi-kernel --seqlens 4K,8K,16K,32K --out "$out/magi-kernel" $stop || failed=$?
    $longca run magi-kernel --kernels $nearest --masks full_document,causal_document,block_causal_document --seqlens 64K,128K \
        --out "$out/magi-kernel" $stop || failed=$?
    return $failed
}

# Llama 3 8B and Qwen3 8B, Qwen2.5 32B, a share of tensor parallelism, small heads, MLA. On causal, kernels for other masks gain nothing.
shapes() {
    local failed=0 shape kernels_masks
    for shape in 32:8,40:8,8:1+128 16:16+64 128:128+192/128; do
        for kernels_masks in "$nearest,fa4:native sliding_window_causal,causal_document,share_question" \
            "fa3,fa4:native,cudnn_flex:rows,cudnn causal"; do
            $longca run paper-kernel --kernels "${kernels_masks% *}" --masks "${kernels_masks#* }" --seqlens 8K,32K,128K \
                --heads "${shape%%+*}" --head-dim "${shape#*+}" $settled --out "$out/model-shapes" $stop || failed=$?
        done
    done
    return $failed
}

energy() {
    $longca run paper-kernel --kernels fa3,cudnn_flex:rows,fa4:native,band_cute,fa4:varlen --masks causal_document,causal --seqlens 32K \
        --energy 1 $settled --out "$out/energy" $stop
}

# Windows between which those of models lie.
windows() {
    local failed=0 w
    for w in 128 512 4096; do
        $longca run paper-kernel --kernels fa3,fa4:native,fa4:bands,band_cute,cudnn_flex:rows --masks sliding_window_causal --set w=$w \
            --seqlens 8K,32K $settled --out "$out/windows" $stop || failed=$?
    done
    return $failed
}

# Block patterns. Beyond 32K only the ratio that makes them worth while, with the kernels near the fastest at 32K.
sparse() {
    local failed=0
    $longca run paper-sparse --seqlens 16K,32K --out "$out/paper-sparse" $stop || failed=$?
    $longca run paper-sparse --kernels block_triton,fa4:blocks,cudnn_bsa,flashinfer --seqlens 64K,128K --heads 64:8 --set ratio=.2 \
        --out "$out/paper-sparse" $stop || failed=$?
    return $failed
}

# Block patterns that attention selects, instead of random ones.
selected() {
    local failed=0 source
    for source in nsa moba; do
        $longca run paper-sparse --seqlens 32K --heads 64:8 --set ratio=.2 --source $source --out "$out/paper-sparse" $stop || failed=$?
    done
    return $failed
}

# FlexAttention compiles for every length, FA4 for every kind of mask and cudnn_flex for long: many processes do it in a minute, a grid
# alone in several.
compile() {
    local length
    for length in 1K 2K 4K 8K 16K 24K 32K 40K 48K 64K 96K 128K; do
        $longca verify --kernels flex --masks full,causal_document,global_sliding_window --seqlens $length &
    done
    $longca verify --kernels cudnn_flex:rows --seqlens 2K &
    $longca verify --kernels cudnn_flex:documents --seqlens 2K &
    $longca verify --kernels fa4:native,fa4:varlen --seqlens 2K &
    $longca verify --kernels fa4:bands --seqlens 4K &
    local failed=0 job
    for job in $(jobs -p); do wait "$job" || failed=1; done
    return $failed
}

for part in $parts; do
    declare -F "$part" > /dev/null || { echo "tools/campaign.sh: there is no part $part." >&2; exit 2; }
done
failed=0
for part in $parts; do
    begun=$SECONDS
    "$part" > "$out/$part.log" 2>&1
    code=$?
    [ $code = 0 ] || failed=1
    echo "$part: exit code $code after $((SECONDS - begun)) s; $(tail -n 1 "$out/$part.log")"
done
exit $failed
