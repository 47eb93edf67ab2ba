"""Probes a model on one rank, and on several."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from longca.code_version import INSTALLED
from longca.errors import BadInput, LongcaError
from longca.masks import Mask
from longca.plugins import import_file
from longca.probe import findings as facts
from longca.probe.expected import Bools, Ints, Setting, direct, probed_tokens, reach
from longca.probe.findings import Finding
from longca.probe.reading import Floats, Model, Reading, join, read
from longca.processes.pool import Pool
from longca.processes.ranks import RankFailed
from longca.processes.shared_gpu import share_gpus
from longca.text import plural, short

LONGEST = 2048  # tokens: every pair of them is looked at
PACKAGE, MOST_FRAMES = str(Path(__file__).parents[1]), 3
JOB_S = 300.0  # for all runs of the model on all ranks


@dataclass(frozen=True)
class Probed:
    """What was seen on a number of ranks: `seen` is [S, probes], with NaN where a change is too small to be certain."""

    ranks: int
    probes: tuple[int, ...]
    rows: tuple[int, ...]  # whose gradients were read; none for a model without an embedding
    expected: Bools  # [S, probes], the pairs that the mask allows
    seen: Floats
    findings: tuple[Finding, ...]
    documents: int = 0  # of the mask


def probe_ranks(
    factory: str, masks: Sequence[Mask], ranks: Sequence[int], vocab: int, probes: int, seed: int, device: str = "cpu", per_gpu: int = 1
) -> list[Probed]:
    """Probes the model that "FILE.py:function" or "module:function" makes, in a pool of ranks of its own for each number of ranks."""
    _refuse(masks, vocab, probes)
    _parts(factory)
    results, alone = [], None
    for count in ranks:
        owner = np.arange(masks[0].seqlen_q) * count // masks[0].seqlen_q
        args = question(masks, owner, vocab, probes, seed)
        try:
            with Pool(count, "nccl" if device == "cuda" else "gloo", sharing=share_gpus(min(count, per_gpu))) as pool:
                answers = pool.run("longca.probe.probe:read_on_rank", {"factory": factory, **args}, JOB_S)
        except RankFailed as failure:
            if failure.kind != "error":
                raise
            raise BadInput(f"with {plural(count, 'rank')}, rank {failure.rank} {failure.message}") from failure
        parts = [_reading(answer) for answer in answers]
        probed, together = examine(masks, parts, args, alone)
        alone = together if count == 1 else alone
        results.append(probed)
    return results


def probe_model(model: Model, masks: Sequence[Mask], vocab: int, probes: int, seed: int) -> list[Probed]:
    """Probes a model in this process; under torch.distributed every rank calls this, and all get the same answer."""
    _refuse(masks, vocab, probes)
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    ranks = torch.distributed.get_world_size() if distributed else 1
    owner = np.arange(masks[0].seqlen_q) * ranks // masks[0].seqlen_q
    args = question(masks, owner, vocab, probes, seed)
    with told():
        part = read(model, torch.tensor(args["ids"]), args["probes"], args["rows"], vocab)
    parts = [part]
    if ranks > 1:
        gathered: list[Any] = [None] * ranks
        torch.distributed.all_gather_object(gathered, part.plain())
        parts = [_reading(answer) for answer in gathered]
    return [examine(masks, parts, args, None)[0]]


def read_on_rank(comm: Any, factory: str, ids: list[int], probes: list[int], rows: list[int], vocab: int) -> dict[str, Any]:
    """The job of a rank in a pool."""
    with told():
        return read(made(factory), torch.tensor(ids, device=comm.device), probes, rows, vocab).plain()


@contextmanager
def told() -> Iterator[None]:
    """Makes one sentence of what a user's model raises, with the last lines of the user's code."""
    try:
        yield
    except LongcaError:
        raise
    except Exception as error:
        raise BadInput(f"the model raises {short(f'{type(error).__name__}: {error}'.rstrip('.'))} ({_place(error)}).") from error


def _place(error: BaseException) -> str:
    """The last frames that are neither LongCA's nor an installed package's; the very last one where there are none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(PACKAGE)]
    own = [frame for frame in frames if not INSTALLED & set(Path(frame.filename).parts) and not frame.filename.startswith("<")]
    named = [f"{Path(frame.filename).name} line {frame.lineno} in {frame.name}" for frame in (own or frames)[-MOST_FRAMES:]]
    return ", ".join(named) or "no frame of it is known"


def _parts(factory: str) -> tuple[str, str]:
    """The file or module, and the function, that a text names; raises BadInput for a file that is not there, before a rank starts."""
    place, _, name = factory.rpartition(":")
    if not place or not name:
        raise BadInput(
            f"{factory!r} names no function; give FILE.py:function, a function that makes the model, or hf:TYPE, such as hf:qwen3."
        )
    if place.endswith(".py") and not Path(place).is_file():
        raise BadInput(f"there is no file {place}; give the path of a Python file with a function that makes a model.")
    return place, name


def made(factory: str) -> Model:
    """Calls the function that a text names; the module of an installed package, or a file."""
    place, name = _parts(factory)
    if place.endswith(".py"):
        module: Any = import_file(place, "function that makes a model")
    else:
        from importlib import import_module

        try:
            module = import_module(place)
        except ImportError as error:
            raise BadInput(f"cannot import {place!r}: {error}; give FILE.py:function or module:function.") from error
    maker = getattr(module, name, None)
    if not callable(maker):
        raise BadInput(f"{place} has no function {name!r}; give the name of the function that makes the model.")
    model: Model = maker()
    if not callable(model):
        raise BadInput(f"{factory} returned {type(model).__name__}; it must return a function of ids, or a module.")
    return model


def question(masks: Sequence[Mask], owner: Ints, vocab: int, probes: int, seed: int) -> dict[str, Any]:
    seqlen = masks[0].seqlen_q
    ids = np.random.default_rng(seed).integers(vocab, size=seqlen)
    setting = _setting(masks, owner)
    ids = facts.share_prefixes(ids, facts.repeated_prefixes(setting))
    tokens = probed_tokens(masks, owner, probes)
    return {"ids": ids.tolist(), "probes": tokens, "rows": probed_tokens(masks, owner, max(4, probes // 4)), "vocab": vocab}


def _setting(masks: Sequence[Mask], owner: Ints) -> Setting:
    documents = next((tuple(mask.documents) for mask in masks if mask.documents), ())
    return Setting(tuple(mask.dense() for mask in masks), documents, owner)


def _reading(answer: dict[str, Any]) -> Reading:
    rows = len(answer["tokens"])
    gradient = answer["gradient"]
    arrays = {
        "tokens": np.array(answer["tokens"], np.int64),
        "outputs": np.array(answer["outputs"], np.float64).reshape(rows, -1),
        "change": np.array(answer["change"], np.float64).reshape(rows, -1),
        "gradient": None if gradient is None else np.array(gradient, np.float64).reshape(-1, rows),
        "idle": tuple(answer["idle"]),
    }
    return Reading(**answer | arrays)


def examine(masks: Sequence[Mask], parts: Sequence[Reading], args: dict[str, Any], alone: Reading | None) -> tuple[Probed, Reading]:
    seqlen = masks[0].seqlen_q
    together = join(parts, seqlen)
    owner = np.zeros(seqlen, np.int64)
    for rank, part in enumerate(parts):
        if len(part.tokens) < seqlen:
            owner[part.tokens] = rank
    setting, probes = _setting(masks, owner), args["probes"]
    if len(parts) > 1 and not owner.any():  # every rank returned all rows; contiguous shares are the usual ones
        setting = replace(setting, owner=np.arange(seqlen) * len(parts) // seqlen)
    forward, backward = facts.forward_pairs(together, probes), facts.backward_pairs(together, args["rows"])
    found = facts.visibility(setting, forward, False)
    found += facts.visibility(setting, backward, True) if backward is not None else []
    if not found:  # other differences follow from these
        found += facts.positions(setting, together)
        found += facts.rank_difference(setting, alone, together) if alone is not None else []
        found += facts.loss(setting, together, np.array(args["ids"]), (alone or together).outputs)
    found += [Finding(facts.SINKS, len(parts), names=together.idle)] if together.idle else []
    seen = np.where(forward.yes, 1.0, np.where(forward.no, 0.0, np.nan))
    expected = reach(setting.layers)[:, probes]
    rows = tuple(args["rows"]) if backward is not None else ()
    return Probed(len(parts), tuple(probes), rows, expected, seen, tuple(found), len(setting.documents)), together


def _refuse(masks: Sequence[Mask], vocab: int, probes: int) -> None:
    lengths = {(mask.seqlen_q, mask.seqlen_k) for mask in masks}
    if len(lengths) > 1 or any(queries != keys for queries, keys in lengths):
        raise BadInput("the masks of the layers must have the same number of queries and keys, all of one length.")
    if masks[0].seqlen_q > LONGEST:
        raise BadInput(f"a probe looks at every pair of up to {LONGEST} tokens, not of {masks[0].seqlen_q}; take a shorter sequence.")
    if vocab < 2 or probes < 4:
        raise BadInput(f"a probe needs a vocabulary of at least 2 ids and at least 4 probes, not {vocab} and {probes}.")
    if not direct([mask.dense() for mask in masks]).any():
        raise BadInput("the mask shows no pair of tokens; there is nothing to probe.")
