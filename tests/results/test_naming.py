"""Names of records beside each other."""

import pytest

from longca import masks
from longca.compare.matching import match
from longca.results import naming
from longca.results.groups import groups_of
from longca.results.reading import identity
from report.made import kernel, make_record, results_of, split

MESH = "mesh fa4:bands"


@pytest.mark.parametrize(
    ("made", "series", "lines"),
    [
        ([(8, None), (16, "node=8"), (64, "node=8")], {MESH}, 3),  # more ranks are on several nodes: that alone is no other method
        ([(16, None), (16, "node=4"), (16, "node=8")], {MESH}, 3),
        ([(8, "stages=0"), (16, "node=8,stages=4")], {"mesh stages=0 fa4:bands", "mesh stages=4 fa4:bands"}, 2),
        ([(16, None), (16, "simulated")], {MESH, f"{MESH}, simulated on h100-ib"}, 2),
    ],
)
def test_the_series_of_a_method_over_ranks_nodes_and_options(made: list[tuple[int, str | None]], series: set[str], lines: int) -> None:
    own = [{"simulated": "h100-ib"} if option == "simulated" else {"options": option} for _, option in made]
    rows = naming.rows(results_of([split("mesh", 1.0, ranks, **more) for (ranks, _), more in zip(made, own, strict=True)]))
    assert {row.series for row in rows} == series
    assert len({row.line for row in rows}) == lines


def test_documents_of_another_distribution_are_no_other_seeds() -> None:
    """Drawn parameters, which differ between seeds, do not tell masks apart."""
    place = {"mask": "prefix_lm_document", "seqlen": 4096}
    usual = [make_record(**place, seed=seed, mask_digest=f"u{seed}", params={"p": seed}) for seed in (1, 42)]
    drawn = make_record(**place, seed=42, mask_digest="c", params={"p": 42}, given={"distribution": "chatqa2", "packing": "chunked"})
    own = make_record(**place, seed=42, mask_digest="o", params={"p": 42}, given={"documents": True})
    names = ["prefix_lm_document", "prefix_lm_document", "prefix_lm_document chatqa2 chunked", "prefix_lm_document own documents"]
    assert [row.mask_name for row in naming.rows(results_of([*usual, drawn, own]))] == names
    assert [row.mask_name for row in naming.rows(results_of([drawn]))] == ["prefix_lm_document"], "where all are drawn in one way"
    assert [len(group.rows) for group in groups_of(results_of([*usual, drawn, own])).every] == [2, 1, 1]


def test_a_mask_is_a_simpler_one_only_if_it_is_so_on_every_seed() -> None:
    causal = masks.build("causal", 8192).digest
    alone = kernel("fa4:bands", [1.0], mask="causal_document", mask_digest=causal, seed=0)
    other = kernel("fa4:bands", [1.0], mask="causal_document", mask_digest="several documents", seed=1)
    assert naming.simpler_mask(naming.rows(results_of([alone]))) == "causal"
    assert naming.simpler_mask(naming.rows(results_of([alone, other]))) is None


def test_ranks_that_share_a_gpu_are_compared_with_their_like_alone() -> None:
    whole, shared = split("mesh", 1.0, 8), split("mesh", 8.0, 8, sharing={"ranks": 8})
    sliced, nodes = split("mesh", 90.0, 8, sharing={"ranks": 8, "mps": False}), split("mesh", 9.0, 8, sharing={"ranks": 8, "nodes": 2})
    results = results_of([whole, shared, sliced, nodes])
    assert len({row.contest.setting.device for row in naming.rows(results)}) == 4
    assert [len(group.rows) for group in groups_of(results).every] == [1, 1, 1, 1]
    assert len({identity(record) for record in results.records}) == 4
    assert match(results.records[:1], results.records[1:]).pairs == []
