"""Stopwatches: work is captured once and replayed, and what cannot be captured is timed as it is and says so."""

import gc
import weakref

import pytest
import torch

from specla.bench.clock import GRAPH, WARM_UPS, HostClock
from tests.bench.fake_graphs import FakeGraphs, Run, fake_clock


def test_on_a_cpu_work_is_timed_as_it_comes() -> None:
    ran: list[int] = []
    with HostClock("cpu").stopwatches() as stopwatch:
        watch = stopwatch(lambda: ran.append(1))
        assert ran == []
        assert watch.seconds(3) > 0 and watch.how == ""
    assert len(ran) == 4, "one run off the clock, then three"


def test_work_is_captured_once_and_replayed() -> None:
    clock, made = fake_clock()
    with clock.stopwatches() as stopwatch:
        watch = stopwatch(lambda: None)
        graphs = made[-1]
        assert graphs.asked == [f"aside {WARM_UPS}", "aside 1, no waiting", "capture"]
        for times in (2, 5):
            graphs.asked.clear()
            watch.seconds(times)
            assert graphs.asked == ["settle", f"elapsed {times}"]
        assert watch.how == GRAPH and graphs.replayed == 1 + 2 + 1 + 5
        graphs.asked.clear()
    assert graphs.asked == ["release"]


def test_work_that_waits_for_the_device_is_timed_with_its_launches() -> None:
    class Waiting(FakeGraphs):
        waits = staticmethod(lambda work: True)

    clock, made = fake_clock(Waiting)
    ran: list[int] = []
    with clock.stopwatches() as stopwatch:
        watch = stopwatch(lambda: ran.append(1))
        assert "capture" not in made[-1].asked, "a capture that fails leaves traces"
        assert watch.how == "eager: RuntimeError: called a synchronizing CUDA operation"
        ran.clear()
        assert watch.seconds(3) > 0 and len(ran) == 4
    assert made[0].asked == ["settle", "elapsed 3"]


def test_a_capture_that_breaks_says_what_broke_it() -> None:
    class Breaking(FakeGraphs):
        breaks = staticmethod(lambda work: work.__name__ == "bad")

    def bad() -> None: ...

    def good() -> None: ...

    clock, _ = fake_clock(Breaking)
    with clock.stopwatches() as stopwatch:
        assert [stopwatch(work).how for work in (good, bad, good)] == [
            GRAPH,
            "eager: ValueError: not while capturing",
            GRAPH,
        ]


def test_errors_of_the_work_itself_are_the_callers() -> None:
    clock, made = fake_clock()

    def broken() -> None:
        raise RuntimeError("no such tile")

    with pytest.raises(RuntimeError, match="no such tile"), clock.stopwatches() as stopwatch:
        stopwatch(broken)
    assert made[-1].asked[-1] == "release"


def test_sets_of_stopwatches_do_not_release_each_other() -> None:
    clock, made = fake_clock()
    with clock.stopwatches() as outer:
        watch = outer(lambda: None)
        with clock.stopwatches() as inner:
            inner(lambda: None)
        assert made[2].asked[-1] == "release" and "release" not in made[1].asked
        assert watch.seconds(1) > 0


def test_what_a_run_lets_go_of_is_kept_while_it_is_replayed() -> None:
    class Pending:
        """What one step leaves for the next."""

    alive: list[weakref.ref[Pending]] = []
    current = Pending()

    def step() -> None:
        nonlocal current
        current = Pending()

    def held() -> object:
        alive.append(weakref.ref(current))
        return current

    clock, _ = fake_clock()
    with clock.stopwatches() as stopwatch:
        watch = stopwatch(step, held)
        watch.seconds(2)
        gc.collect()
        assert len(alive) == 1 and alive[0]() is not None
    gc.collect()
    assert alive[0]() is None


def _sync() -> None:
    torch.ones(4, device="cuda").sum().item()


def _forbidden() -> None:
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("bad", [_sync, _forbidden])
def test_real_graphs_beside_work_that_has_none(bad: Run) -> None:
    from specla.bench.clock import clock_for

    clock = clock_for("cuda")
    x = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    with clock.stopwatches() as stopwatch:
        first, other, again = (stopwatch(work) for work in (lambda: x @ x, bad, lambda: (x @ x) @ x))
        assert (first.how, again.how) == (GRAPH, GRAPH)
        assert other.how.startswith("eager: ") and other.seconds(2) > 0
        once, ten = first.seconds(1), first.seconds(10)
        assert ten == pytest.approx(10 * once, rel=0.5)
        assert again.seconds(10) == pytest.approx(2 * ten, rel=0.3)
        # A captured product takes as long as a launched one, which is long beside its launch.
        assert ten == pytest.approx(clock.seconds(lambda: x @ x, 10), rel=0.3)
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
        assert torch.cuda.get_sync_debug_mode() == 0
    # A capture that broke keeps the pool that torch had opened for it.
    if bad is _sync:
        assert torch.cuda.memory_reserved() <= before + (256 << 20), "the products' memory is given back"
    assert clock.cache_bytes > 1 << 20 and clock.free_bytes > 1 << 20


@pytest.mark.gpu
@pytest.mark.alone
def test_a_small_graph_is_timed_without_its_launch() -> None:
    from specla.bench.clock import clock_for

    clock = clock_for("cuda")
    x = torch.zeros(256, device="cuda")

    def many() -> None:
        for _ in range(100):
            x.add_(1.0)

    with clock.stopwatches() as stopwatch:
        captured = stopwatch(many).seconds(5) / 500
        launched = clock.seconds(many, 5) / 500
    assert captured < 4e-6 and captured < launched
