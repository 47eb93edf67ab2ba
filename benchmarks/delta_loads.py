"""Would a backward be faster if its main kernel computed delta (the sum of out x dout over the head size) itself? Bounds, and a try.

    PYTHONPATH=src python benchmarks/delta_loads.py [--masks causal_document,share_question] [--seqlens 32K] [--out FILE]
    PYTHONPATH=src python benchmarks/delta_loads.py --inside           also a backward whose main kernel computes delta
    PYTHONPATH=src python benchmarks/delta_loads.py --compile-only     needs no GPU: compiles for a Hopper GPU into --cache

The main kernel would load a tile of `out` beside every tile of dout. A variant of band_cute loads each tile of dout twice instead: as many
bytes to the same place, and a right result, which is compared. It costs at least that, as the second tile is surely in the L2 cache and
nothing is computed from it. The kernel before would no longer read out and dout, but still clear the sums of dq: it gains at most the
difference of its time to that of clearing them. The idea pays only where `gain` is more than `cost`. With --inside,
two main kernels that compute delta are timed too (`_delta_inside.py`: by one or two warps). They have not run on a GPU yet. All results are
compared with the usual ones, before and after the samples, which are taken in turns.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from longca import masks
from longca.errors import LongcaError, Refused
from longca.kernels import registry
from longca.kernels.backends.band_cute._attention import JoinedAttention
from longca.kernels.base import Case, No
from longca.text import format_size, parse_size

MASKS = "sliding_window,sliding_window_causal,full_document,causal_document,share_question,causal_blockwise,prefix_lm_document"
SAMPLES = 15
CACHE = "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"
FILES = Path(__file__), Path(__file__).with_name("_delta_inside.py")
SOURCE = hashlib.sha256(b"".join(file.read_bytes() for file in FILES)).hexdigest()  # a changed kernel is compiled again
TOLERANCE = 0.02  # of the largest element: sums of dq are added in any order, and rounded to 8 bits


class TwiceLoaded(JoinedAttention):
    """band_cute's backward with every tile of dout loaded twice."""

    def _key(self, *tensors: Any) -> tuple[Any, ...]:
        return "dout twice", SOURCE, *super()._key(*tensors)

    def _compile(self, *tensors: Any) -> Any:
        with dout_twice():
            return super()._compile(*tensors)


class InsideAttention(JoinedAttention):
    """band_cute's backward with delta computed by the main kernel, by one or two of its `warps`. `out` must lie behind `dout`, in the heads
    of one tensor."""

    def __init__(self, mask: masks.Mask, case: Case, warps: int) -> None:
        super().__init__(mask, case)
        self.warps = warps

    def _key(self, *tensors: Any) -> tuple[Any, ...]:
        return f"delta inside, {self.warps}", SOURCE, *super()._key(*tensors)

    def _compile(self, *tensors: Any) -> Any:
        from _delta_inside import delta_inside

        with delta_inside(self.warps):
            return super()._compile(*tensors)

    def _prepare(self, out: Any, dout: Any, lse: Any, delta: Any, lse2: Any, sums_q: Any) -> None:
        if not self.library.is_fake_mode() and out.data_ptr() != dout[:, :, -1].data_ptr() + dout.stride(2) * dout.element_size():
            raise Refused("out must lie behind dout.")
        import torch

        sums_q.zero_()
        torch.mul(lse, math.log2(math.e), out=lse2)

    def _main(self, q: Any, k: Any, v: Any, dout: Any, *others: Any) -> None:
        _, length, heads, size = dout.shape
        super()._main(q, k, v, dout.as_strided((1, length, 2 * heads, size), dout.stride()), *others)


@contextmanager
def dout_twice() -> Iterator[None]:
    """The main kernel that is compiled meanwhile loads each tile of dout twice, and waits for as many bytes."""
    from longca.kernels.backends.band_cute import _main, _walk

    class Waiting(_main.JoinedBackward):  # type: ignore[misc]
        @property
        def tma_copy_bytes(self) -> dict[str, int]:
            return self.__dict__["bytes"]

        @tma_copy_bytes.setter
        def tma_copy_bytes(self, loaded: dict[str, int]) -> None:
            self.__dict__["bytes"] = loaded | {"dO": 2 * loaded["dO"]}

    def load(*arguments: Any) -> Any:
        *before, load_dout, lse, delta, bytes_k, bytes_v, same_stages, heads = arguments

        def twice(tile: Any, producer_state: Any) -> None:
            load_dout(tile, producer_state=producer_state)
            load_dout(tile, producer_state=producer_state)

        return usual[1](*before, twice, lse, delta, bytes_k, bytes_v, same_stages, heads)

    usual = _main.JoinedBackward, _walk._load
    _main.JoinedBackward, _walk._load = Waiting, load
    try:
        yield
    finally:
        _main.JoinedBackward, _walk._load = usual


def attentions(mask: masks.Mask, case: Case, with_inside: bool) -> dict[str, JoinedAttention]:
    inside = {f"inside{warps}": InsideAttention(mask, case, warps) for warps in (1, 2)} if with_inside else {}
    return {"usual": JoinedAttention(mask, case), "twice": TwiceLoaded(mask, case), **inside}


def measure(mask: masks.Mask, case: Case, with_inside: bool) -> dict[str, Any]:
    """Returns a row: milliseconds of each kind of backward, of the kernel before the main one, and of clearing alone."""
    import torch

    from longca.kernels.choice.clocks import clock_for
    from longca.kernels.inputs import make

    kinds, (q, k, v, dout, *_), clock = attentions(mask, case, with_inside), make(case), clock_for("cuda")
    out, lse = kinds["usual"].forward(q, k, v)
    together = torch.cat([dout, out], 1).split(case.heads_q, 1)
    given = {name: together if name.startswith("inside") else (dout, out) for name in kinds}
    calls: dict[str, Any] = {
        name: lambda one=one, dout=given[name][0], out=given[name][1]: one.backward(dout, q, k, v, out, lse) for name, one in kinds.items()
    }
    backwards = dict(calls)
    compare(mask, backwards)
    delta, base2 = (q.new_empty(1, case.heads_q, case.seqlen_q, dtype=torch.float32) for _ in range(2))
    sums = q.new_empty(1, case.heads_q, case.seqlen_q * case.head_dim, dtype=torch.float32)
    calls["before"] = lambda: kinds["usual"]._prepare(out[None], dout[None], lse[None], delta, base2, sums)
    calls["clear"] = sums.zero_
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(SAMPLES):
        for name in Random(number).sample(list(calls), len(calls)):
            samples[name].append(clock.sample(calls[name]))
    compare(mask, backwards)
    times = {f"{name}_ms": round(median(taken[2:]), 4) for name, taken in samples.items()}  # the first two warm up
    return {"mask": mask.name, "seqlen": case.seqlen_q, **times}


def compare(mask: masks.Mask, calls: dict[str, Any]) -> None:
    """Raises Refused if a backward's results are not the usual ones."""
    usual = calls["usual"]()
    for kind in sorted(set(calls) - {"usual"}):
        for name, mine, other in zip(("dq", "dk", "dv"), usual, calls[kind](), strict=True):
            if not (mine.float() - other.float()).abs().max() <= TOLERANCE * mine.float().abs().max():
                raise Refused(f"{name} of {mask.name} is wrong in the kind {kind}.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", default=MASKS)
    parser.add_argument("--seqlens", default="32K")
    parser.add_argument("--out", type=Path, help="append the rows as JSON lines")
    parser.add_argument("--inside", action="store_true", help="also time main kernels that compute delta")
    parser.add_argument("--compile-only", action="store_true")
    kept = Path(os.environ.get(CACHE, "out/fa4-cache"))
    parser.add_argument("--cache", type=Path, default=kept, help="where compiled kernels are kept")
    args = parser.parse_args()
    os.environ |= {"FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1", CACHE: str(args.cache)}
    try:
        if args.compile_only:
            from compile_fa4 import pretend

            pretend(1, args.cache)
        elif isinstance(missing := registry.available(registry.get("band_cute"), "cuda"), No):
            raise Refused(f"band_cute cannot run here: {missing.reason}.")
        inside = f" {'inside, by 1 and 2 warps':>27}" if args.inside else ""
        print(f"{'mask':<24}{'tokens':>7} {'backward':>9} {'cost':>7} {'gain':>7}{inside}   ms")
        for seqlen in map(parse_size, args.seqlens.split(",")):
            for name in args.masks.split(","):
                mask, case = masks.build(name, seqlen, seed=42), Case(seqlen, seqlen, 64, 8, 128, 128, "bf16", "cuda")
                if args.compile_only:
                    compile_only(mask, case, args.inside)
                    continue
                row = measure(mask, case, args.inside)
                cost, gain = row["twice_ms"] - row["usual_ms"], row["before_ms"] - row["clear_ms"]
                times = f"{row['usual_ms']:>9.3f} {cost:>7.3f} {gain:>7.3f}"
                times += f" {row['inside1_ms']:>17.3f} {row['inside2_ms']:>9.3f}" if args.inside else ""
                print(f"{name:<24}{format_size(seqlen):>7} {times}", flush=True)
                if args.out:
                    with args.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
    except LongcaError as error:
        print(f"delta_loads: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def compile_only(mask: masks.Mask, case: Case, with_inside: bool) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from longca.kernels.backends.fa4.kernel import compile_ahead

    with FakeTensorMode(allow_non_fake_inputs=True):
        for attention in attentions(mask, case, with_inside).values():
            compile_ahead(attention, case)


if __name__ == "__main__":
    raise SystemExit(main())
