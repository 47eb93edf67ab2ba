"""Marks a sample of the GPU tests: `-m "gpu and sample"` runs some cases of every test function for every kernel."""

from collections import defaultdict

import pytest

STEP = 13  # one case of so many, and at least one of each kernel and function


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Neighbouring kernels get different cases of a function, so that together they cover its masks, head sizes and cuts."""
    cases = defaultdict[str, dict[str, list[pytest.Item]]](lambda: defaultdict(list))  # by function and kernel
    for item in items:
        if item.get_closest_marker("gpu") and isinstance(item, pytest.Function):
            given = item.callspec.params if hasattr(item, "callspec") else {}
            cases[item.nodeid.partition("[")[0]][str(given.get("label", given.get("kernel")))].append(item)
    for by_kernel in cases.values():
        for place, group in enumerate(by_kernel.values()):
            for item in group[place % min(STEP, len(group)) :: STEP]:
                item.add_marker("sample")
