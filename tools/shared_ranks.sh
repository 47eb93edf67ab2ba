#!/usr/bin/env bash
# Checks and measures context parallelism with NCCL ranks that share this machine's GPU (docs/cluster.md says what that needs). Called again,
# journals resume. The exit code is 1 if a part failed, 3 if the time ended before the last part.
#
#   tools/shared_ranks.sh [--stop-after S] OUT [PART...]
#
# Parts, in the order without any: two check first more fewer nodes peers patterns calls transfers traces choices tests. STOP_AFTER=S is the
# same as --stop-after S. `two` and `check` run `longca verify` on 2 and on 8 ranks; `first` measures causal and causal_document on 8 ranks of
# 8K tokens, `more` the other ten masks, `fewer` 2 and 4 ranks, `nodes` two pretended nodes of four ranks, `peers` other projects' methods,
# `patterns` block patterns. `calls` measures the kernel while all ranks work: documents of one rank each, so that nothing is sent.
# `transfers` are those that `longca calibrate` reads. `traces` shows what compute hides of transfers, with a file for Perfetto for each
# cell. `choices` measures what a user may change: the CTAs of NCCL, and in how many stages keys come.
set -uo pipefail
cd "$(dirname "$0")/.."
stop=${STOP_AFTER:-0}
if [ "${1:-}" = --stop-after ]; then stop=$2; shift 2; fi
out=${1:?give a folder for the results: tools/shared_ranks.sh [--stop-after S] OUT [PART...]}
shift
parts=${*:-two check first more fewer nodes peers patterns calls transfers traces choices tests}
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
python=${PYTHON:-python3}
longca="$python -m longca"
mkdir -p "$out"
others=full,sliding_window,sliding_window_causal,full_document,share_question,causal_blockwise,prefix_lm_causal,prefix_lm_document
others=$others,global_sliding_window,block_causal_document
four=causal,causal_document,sliding_window_causal,share_question

left() { if [ "$stop" = 0 ]; then echo 100000; else echo $((stop - SECONDS)); fi; }

# Stops as Ctrl-C does when the time is over: what was found until then is kept.
verify() { timeout --signal=INT --kill-after=60 "$(left)" $longca verify --level cp --seqlens 1K "$@"; }

# A journal for all: ranks, and how they share the GPU, are part of each cell.
measure() {
    $longca run --level cp --kernels fa4 --heads 64:8 --head-dim 128 --dtype bf16 --clock warmup_s=.1,budget_s=.4 --seed 0 \
        --out "$out/ranks" --stop-after "$(left)" "$@"
}

grid() { case $1 in 2) echo 2x1 ;; 4) echo 2x2,1x4x2 ;; 8) echo 4x2,2x4x2 ;; esac; }

two() { verify --ranks-per-gpu 2 --masks causal,causal_document --out "$out/verify-2"; }
check() { verify --ranks-per-gpu 8 --out "$out/verify-8"; }
first() { measure --ranks-per-gpu 8 --methods all --grid "$(grid 8)" --seqlens 64K --masks causal,causal_document; }
more() { measure --ranks-per-gpu 8 --methods all --grid "$(grid 8)" --seqlens 64K --masks $others; }
peers() { measure --ranks-per-gpu 8 --methods peers --seqlens 64K --masks causal; }
patterns() {
    local failed=0 which
    for which in "--source msa" "--source nsa --set b=128,ratio=.05" "--set b=128,ratio=.2"; do
        # shellcheck disable=SC2086  # several words
        measure --ranks-per-gpu 8 --methods ulysses,ring_allgather,block_cast --seqlens 64K --masks uniform_block --seed 42 $which \
            --out "$out/sparse" || failed=$?
    done
    return $failed
}
nodes() { measure --ranks-per-gpu 8 --pretend-nodes 2 --methods all --grid "$(grid 8)" --seqlens 64K --masks $four; }
fewer() {
    local failed=0 ranks
    for ranks in 4 2; do
        measure --ranks-per-gpu $ranks --methods all --grid "$(grid $ranks)" --seqlens $((8 * ranks))K --masks $four || failed=$?
    done
    return $failed
}
calls() {
    local failed=0 each
    for each in 8192 4096 2048; do
        $python -c "print([$each] * (65536 // $each))" > "$out/documents-$each.json"
        measure --ranks-per-gpu 8 --methods hybrid_dcp --seqlens 64K --masks causal_document,full_document \
            --lengths "$out/documents-$each.json" || failed=$?
    done
    return $failed
}
transfers() { # the last lines of a verification, with few cases before them
    local failed=0
    verify --ranks-per-gpu 8 --methods ulysses --masks causal --out "$out/transfers-8" || failed=$?
    verify --ranks-per-gpu 8 --pretend-nodes 2 --methods ulysses --masks causal --out "$out/transfers-2x4" || failed=$?
    return $failed
}
traces() {
    $longca run --level cp --kernels fa4 --heads 64:8 --head-dim 128 --dtype bf16 --clock warmup_s=.05,budget_s=.1 --ranks-per-gpu 8 \
        --methods all --grid "$(grid 8)" --seqlens 64K --masks causal,causal_document --trace "$out/traces" --out "$out/traced" \
        --stop-after "$(left)"
}
choices() {
    local failed=0 ctas
    for ctas in 1 4; do
        NCCL_MAX_CTAS=$ctas measure --ranks-per-gpu 8 --methods ulysses,ring_p2p,ring_allgather,magi --seqlens 64K --masks causal || failed=$?
    done
    measure --ranks-per-gpu 8 --methods magi,halo --option stages=0,1,2,4 --seqlens 64K --masks causal_document,sliding_window_causal || failed=$?
    return $failed
}
tests() { timeout --kill-after=60 "$(left)" $python -m pytest -q -m gpu tests/parallel/test_channels.py tests/processes/test_nccl_faults.py \
    tests/bench/many_devices/test_joined.py; }

status=0
for part in $parts; do
    if [ "$(left)" -le 10 ]; then
        echo "== the time is over before $part"
        status=3
        break
    fi
    begun=$SECONDS
    echo "== $part"
    $part 2>&1 | tee "$out/$part.log"
    code=${PIPESTATUS[0]}
    echo "== $part: exit code $code after $((SECONDS - begun)) s"
    [ "$code" = 0 ] || [ "$status" != 0 ] || status=1
done
exit $status
