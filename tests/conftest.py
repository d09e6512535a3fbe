"""What holds for every test: GPU tests skip without a GPU, and parallel workers share the cores instead of fighting."""

import os

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """In a worker of pytest-xdist, give torch its part of the cores. Torch reads the variable when it is imported."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // workers))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    needy = [item for item in items if item.get_closest_marker("gpu")]
    if not needy:
        return
    import torch

    if not torch.cuda.is_available():
        for item in needy:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
