#!/usr/bin/env bash
# The grids of results/<device> and the tests of what they stand on, on this machine's GPU. The grids (kernels, sparse, selected) and
# the alarms go on where they stopped when they are called again; the other parts begin anew. Exit code 1 where a part failed.
#
#   tools/campaign.sh OUT [PART...]
#
# Parts, in the order in which all of them run by default: tests clock settling lists compile kernels sparse selected parallel alarms.
# STOP_AFTER=S ends each grid after S seconds (exit code 3: not complete); then `longca merge results/<device>/NAME OUT/NAME --pack` keeps a grid.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?give a folder for the results: tools/campaign.sh OUT [PART...]}
shift
parts=${*:-tests clock settling lists compile kernels sparse selected parallel alarms}
stop=${STOP_AFTER:+--stop-after $STOP_AFTER}
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
longca="$python -m longca"
mkdir -p "$out"

tests()    { $python -m pytest -q -m gpu -n 10 tests/kernels tests/bench --deselect tests/bench/clock/test_clock_gpu.py; }
parallel() { $python -m pytest -q -m gpu -n 6 tests/parallel; }
clock()    { $python -m pytest -q -m gpu tests/bench/clock/test_clock_gpu.py && $python benchmarks/clock_accuracy.py; }  # with nothing beside it
settling() { $python benchmarks/settling.py; }
lists()    { $python benchmarks/block_lists.py; }
kernels()  { $longca run paper-kernel --out "$out/paper-kernel" $stop; }
sparse()   { $longca run paper-sparse --seqlens 32K --out "$out/paper-sparse" $stop; }
selected() { $longca run paper-sparse --seqlens 32K --heads 64:8 --set ratio=.2 --source nsa --out "$out/paper-sparse" $stop; }
alarms()   { $python benchmarks/compare_false_alarms.py --out "$out/alarms"; }

# FlexAttention compiles for every length, FA4 for every kind of mask and cudnn_flex for long: many processes do it in a minute, a grid
# alone in several.
compile() {
    local length
    for length in 1K 2K 4K 8K 16K 24K 32K 40K 48K; do
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
