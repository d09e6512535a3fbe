"""What holds for every test: one thread, GPU tests skip without a GPU, and exhaustive ones without --exhaustive."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from specla.interrupt import SIGNALS


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--exhaustive` runs what takes many minutes."""
    parser.addoption("--exhaustive", action="store_true", help="also run tests that take many minutes")


def pytest_configure(config: pytest.Config) -> None:
    """In a worker of pytest-xdist, give torch its part of the cores. Torch reads the variable when it is imported."""
    config.addinivalue_line("markers", "exhaustive: takes many minutes; runs with --exhaustive alone")
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // workers))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what was not asked for, and what needs a GPU where there is none."""
    if not config.getoption("--exhaustive"):
        _skip(items, "exhaustive", "takes many minutes: give --exhaustive")
    if any(item.get_closest_marker("gpu") for item in items):
        import torch

        if not torch.cuda.is_available():
            _skip(items, "gpu", "needs a CUDA device")


def _skip(items: list[pytest.Item], marker: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def usual_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as where nobody says otherwise, whatever the shell or a library has exported."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tensors of tests are tiny, and threads would wait for each other at every operation. Imports no torch itself."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


@pytest.fixture
def untouched_signals() -> Iterator[None]:
    """What ends a command as a shell leaves it: under nohup the tests ignore one, and coverage takes one for itself."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
