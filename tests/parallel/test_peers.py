"""Other projects' context parallelism as methods, on gloo ranks, with torch's attention operator for CPUs in every step."""

from __future__ import annotations

import pytest

from longca import masks
from longca.bench.many_devices.level import methods_of
from longca.bench.plan.suite import Suite
from longca.bench.plan.versions import method_versions
from longca.errors import BadInput, Refused, Unavailable
from longca.parallel import registry
from longca.parallel.comm.trace import TraceComm
from longca.parallel.method import Method
from longca.processes.pool import Pool
from longca.processes.ranks import RankFailed
from parallel.running import case_of, mask_of, plan_of

RANKS, SEQLEN = 4, 208  # tokens that divide by twice the ranks
EVERY_MASK = ("deepspeed_ulysses", "yunchang_ulysses")  # the others take a causal mask


def here(name: str) -> None:
    if not (answer := registry.get(name).available()):
        pytest.skip(str(answer))


@pytest.mark.slow
@pytest.mark.parametrize("grid", ["", "1x4"])
@pytest.mark.parametrize("name", [name for name in registry.peers() if registry.get(name).peer])
def test_peers_are_right(name: str, grid: str, pool: Pool) -> None:
    here(name)
    if grid and not (registry.get(name).splits_heads and registry.get(name).has_ring):
        grid = ""
    wrong_in_fp32 = getattr(registry.get(name), "wrong_in_fp32", "")
    for mask in ("causal", "share_question") if name in EVERY_MASK else ("causal",):
        args = {"method": name, "mask": mask, "seqlen": SEQLEN, "heads": [8, 4], "grid": grid, "kernel": "sdpa:flash"}
        args |= {"kernel": "torch:chunked"} if mask != "causal" else {}
        answers = pool.run("parallel.jobs:worst_error", {**args, "dtype": "bf16" if wrong_in_fp32 else "fp32"}, 120)
        assert max(answer["error"] for answer in answers) < (2e-2 if wrong_in_fp32 else 2e-5)


@pytest.mark.parametrize("name", ["ring_flash_attn", "yunchang_usp"])
def test_what_is_refused_in_fp32_is_wrong_there(name: str, pool: Pool) -> None:
    """The day that it is right the refusal goes."""
    here(name)
    args = {"method": name, "mask": "causal", "seqlen": SEQLEN, "heads": [8, 4], "grid": "", "dtype": "fp32"}
    with pytest.raises(RankFailed, match=r"wrong in fp32.*use bf16"):
        pool.run("parallel.jobs:worst_error", args, 120)
    answers = pool.run("parallel.jobs:worst_error", {**args, "allow_fp32": True}, 120)
    assert max(answer["error"] for answer in answers) > 1e-3


@pytest.mark.parametrize(
    ("method", "mask", "seqlen", "heads", "grid", "words"),
    [
        ("torch_cp", "causal", 197, (4, 2), "", "197 tokens do not divide by 8; give 200"),
        ("torch_cp", "full", 208, (4, 2), "", "it takes the mask causal, not full; use magi or ring_p2p"),
        ("torch_cp", "causal", 208, (4, 2), "2x2", "does not split heads.*use grid 1x4"),
        ("yunchang_usp", "causal", 208, (4, 2), "4x1", "the grid 4x1 leaves no ring; use grid 2x2, or ulysses"),
        ("deepspeed_ulysses", "causal", 208, (4, 2), "", "4:2 heads do not divide by 4 ranks; use ulysses or usp"),
        ("yunchang_usp", "causal", 208, (4, 4), "2x2", "its gradients are wrong in fp32"),
    ],
)
def test_what_a_peer_cannot_do_is_refused_with_what_would_work(
    method: str, mask: str, seqlen: int, heads: tuple[int, int], grid: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.classes()[method], "modules", ())
    with pytest.raises(Refused, match=words):
        plan_of(method, mask_of(mask, seqlen), case_of(seqlen, heads), 4, grid)


class Absent(Method):
    name, about, needs, peer = "absent", "", "", True
    modules, package = ("no_such_module_of_anybody",), "absent-package"
    shards = program = None  # type: ignore[assignment]


def test_a_peer_that_is_missing_is_unavailable_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_plugins", {"absent": Absent})
    with pytest.raises(Unavailable, match=r"absent is not available here .*pip install absent-package"):
        plan_of("absent", masks.causal(64), case_of(64), 4)
    assert next(entry for entry in registry.listing() if entry["name"] == "absent")["here"].endswith("pip install absent-package")


Absent.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


def test_peers_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not set(methods_of(Suite(methods=("all",)))) & set(registry.peers())
    assert "torch_cp" in methods_of(Suite(methods=("peers",)))
    assert methods_of(Suite(methods=("magi", "torch_cp"))) == ["magi", "torch_cp"]
    monkeypatch.setattr(registry, "peers", list)
    with pytest.raises(Unavailable, match="longca ls cp"):
        methods_of(Suite(methods=("peers",)))
    with pytest.raises(BadInput, match="torch_cpp"):
        methods_of(Suite(methods=("torch_cpp",)))


def test_a_peers_package_is_part_of_its_versions() -> None:
    assert set(method_versions("ring_flash_attn")) == {"method_code", "ring-flash-attn"}
    assert set(method_versions("torch_cp")) == {"method_code"}  # torch's own is in every key


def test_a_peer_needs_real_ranks() -> None:
    plan = plan_of("torch_cp", masks.causal(64), case_of(64), 4)
    with pytest.raises(Refused, match="real ranks"):
        plan.program(TraceComm(0, 4))
