"""What no function of the Python API can take is one sentence of a LongcaError, as on the command line."""

from collections.abc import Callable
from typing import Any

import pytest

import longca

DEVICE = "unknown device 'H200'; known are: cpu, cuda."
MASK = "a mask must be a name, a file, an expression, a pattern or a Mask, not 3."
JOURNAL = "name the folder of a journal, or give what longca.run returned."


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        *((lambda verb=verb: verb("torch", device="H200"), DEVICE) for verb in (longca.verify, longca.numerics, longca.profile)),
        *((lambda verb=verb: verb("causal", 64, device="H200"), DEVICE) for verb in (longca.case, longca.tune)),
        (lambda: longca.run(kernels="torch", device="H200"), DEVICE),
        (lambda: longca.ab("torch", "sdpa", device="H200"), DEVICE),
        (lambda: longca.verify_cp("ulysses", device="H200"), DEVICE),
        (lambda: longca.doctor("H200"), DEVICE),
        (lambda: longca.show_mask(3), MASK),
        (lambda: longca.explain(3, 64), MASK),
        (lambda: longca.probe(len, 3), MASK),
        *((verb, JOURNAL) for verb in (longca.report, longca.export, longca.history, lambda: longca.merge("out"))),
    ],
)
def test_a_value_that_makes_no_sense_is_one_sentence(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(longca.BadInput) as refused:
        call()
    assert str(refused.value) == sentence


def test_a_pattern_stands_for_its_name_where_one_mask_is_taken() -> None:
    assert longca.show_mask(longca.masks.causal, 64).rows == longca.show_mask("causal", 64).rows
