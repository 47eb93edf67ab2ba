"""What no function of the Python API can take is one sentence of a LongcaError, as on the command line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import longca
from longca import masks

DEVICE = "unknown device 'H200'; known are: cpu, cuda."
MASK = "a mask must be a name, a file, an expression, a pattern or a Mask, not 3."
JOURNAL = "name the folder of a journal, or give what longca.run returned."
OWN_LENGTH = "Mask objects have their own length"
SMALL = {"heads": "2:1", "head_dims": 16, "dtypes": "fp32", "device": "cpu"}


@longca.kernel
def mine(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    return q


@longca.kernel(name="sdpa")
def taken(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    return q


def run(**given: Any) -> Any:
    return longca.run(**{"kernels": "torch", "device": "cpu", "progress": False} | given)


def verify(**given: Any) -> Any:
    return longca.verify(**{"kernel": mine, "device": "cpu"} | given)


def ab(**given: Any) -> Any:
    return longca.ab(**{"old": "torch", "new": "sdpa", "progress": False, **SMALL} | given)


def profile(**given: Any) -> Any:
    return longca.profile(**{"kernel": "torch", "seqlen": 64, **SMALL} | given)


def simulate(**given: Any) -> Any:
    return longca.simulate("ulysses", "causal", **given)


def masked(wanted: Any, seqlens: Any = None) -> Any:
    return longca.verify("torch:plain", wanted, seqlens, **SMALL)


CASES: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    *((verb, {"device": "H200"}, DEVICE) for verb in (run, verify, ab, profile, longca.numerics, longca.verify_cp, longca.doctor)),
    *((verb, {"mask": "causal", "seqlen": 64, "device": "H200"}, DEVICE) for verb in (longca.case, longca.tune)),
    *((verb, {"mask": 3}, MASK) for verb in (longca.show_mask, longca.explain)),
    (longca.probe, {"model": len, "mask": 3}, MASK),
    (longca.probe, {"model": len, "mask": []}, "mask is empty"),
    (longca.probe, {"model": lambda ids: ids[:, None] + 0.0, "seqlen": 8, "png": "/proc/nowhere/seen.png"}, "cannot write /proc/nowhere"),
    (longca.numerics, {"kernels": "torch:chunked", "methods": "ulysses", "ranks": "²", "device": "cpu"}, "ranks must be numbers from 1"),
    *((verb, {}, JOURNAL) for verb in (longca.report, longca.export, longca.history)),
    (longca.merge, {"out": "out"}, JOURNAL),
    (longca.run, {}, "name a suite ("),
    (run, {"kernels": []}, "kernels is empty"),
    (run, {"kernels": 3}, "kernel must be a name such as 'sdpa'"),
    (run, {"masks": [None]}, "masks must be a text, a number or a list"),
    (run, {"nproc": "two", "level": "cp"}, "nproc must be a whole number, not 'two'."),
    (run, {"shard": 5}, "shard must be a text, not 5."),
    (run, {"suite": 5}, "suite must be a text or a path, not 5."),
    (run, {"full": "yes"}, "full must be True or False, not 'yes'."),
    (longca.explain, {"mask": "causal", "seqlen": 64, "params": 3}, "params must be a dictionary, not 3."),
    (longca.recommend, {"mask": "causal", "seqlen": "1K", "softcap": "x"}, "softcap must be a number, not 'x'."),
    (longca.best, {"mask": masks.causal(8), "seqlen": 8}, "mask must be a text, not <Mask causal 8x8"),
    (simulate, {"constants": {"between.gb_s": None}}, "constants['between.gb_s'] must be a number, or a list of some, not None."),
    (simulate, {"constants": {"between.gb_s": [1, 2]}}, "constants['between.gb_s'] must be one number."),
    (simulate, {"constants": {3: 3}}, "3 is no constant of a cluster"),
    (longca.validate_simulation, {"constants": [1]}, "constants must be a dictionary"),
    (longca.validate_simulation, {"against": 3}, "give the folder of a journal"),
    (longca.calibrate, {"folder": None}, "give the folder of a journal"),
    (run, {"out": 3}, "give the folder of a journal"),
    (run, {"kernels": mine, "level": "cp"}, "ranks are separate processes"),
    (run, {"kernels": mine, "memory": "4G"}, "memory has no effect on a kernel that is a Python object"),
    (run, {"kernels": "torch,nowhere.py"}, "there is no plugin file nowhere.py"),
    (run, {"kernels": taken}, "the kernel 'sdpa' has the name of a kernel of LongCA"),
    (verify, {"kernel": "nope"}, "unknown kernel 'nope'"),
    (verify, {"kernel": lambda q: q}, "kernel must be a name such as 'sdpa'"),
    (verify, {"masks": "moon"}, "unknown mask 'moon'"),
    (verify, {"masks": []}, "masks is empty"),
    (verify, {"masks": "causal", "packing": "mixed"}, "a packing is given, and none of these masks has documents; leave it out."),
    (verify, {"dtypes": "fp8"}, "unknown dtype 'fp8'"),
    (verify, {"repeat": 0}, "--repeat must be 1 or more"),
    (verify, {"deadline": 5}, "deadline has no effect on a kernel that is a Python object"),
    (verify, {"params": {"w": [1, 2]}, "masks": "sliding_window"}, "verify takes one value per parameter"),
    (ab, {"old": "nosuch"}, "unknown kernel 'nosuch'"),
    (ab, {"old": "HEAD"}, "unknown kernel 'HEAD'"),
    (ab, {"seconds": 0}, "--seconds must be a number of seconds over 0"),
    (ab, {"threshold": "x"}, "--threshold 'x' is not understood"),
    (ab, {"old": 7}, "kernel must be a name such as 'sdpa'"),
    (profile, {"mask": "causal,full"}, "a profile is of one mask, length and shape, not of 2"),
    (profile, {"heads": "2:1,4:1"}, "a profile is of one mask, length and shape, not of 2"),
    (profile, {"out": "/proc/nowhere"}, "cannot write to /proc/nowhere"),
    (masked, {"wanted": [masks.causal(64), masks.causal(96)]}, OWN_LENGTH),
    (masked, {"wanted": [masks.causal(64), "full"]}, OWN_LENGTH),
    (masked, {"wanted": masks.uniform_block(256, b=64)}, "give a block pattern by its name"),
]


@pytest.mark.parametrize(("verb", "given", "sentence"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_value_that_makes_no_sense_is_one_sentence(verb: Callable[..., Any], given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(longca.LongcaError) as refused:
        verb(**given)
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)


def test_numbers_of_numpy_are_numbers() -> None:
    shown = longca.show_mask("sliding_window", np.int64(64), seed=np.int32(3), params={"w": 9})
    assert shown.rows == longca.show_mask("sliding_window", 64, seed=3, params={"w": 9}).rows


def test_a_pattern_stands_for_its_name_where_one_mask_is_taken() -> None:
    assert longca.show_mask(masks.causal, 64).rows == longca.show_mask("causal", 64).rows
