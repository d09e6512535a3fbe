"""An interrupt ends a block of work, also one that Python ignores where it is raised."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from specla.bench.cases.work import Events, interruptible
from specla.bench.record import Status
from specla.interrupt import SIGNALS, Interrupt, check, remembered, unbroken
from tests.factory import decode_record, unmeasured

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.usefixtures("untouched_signals"),
]


class Unheard:
    """Its finaliser is where the signal arrives: Python ignores what its handler raises there."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def lose_an_interrupt() -> None:
    """Be interrupted without notice."""
    Unheard()


@contextmanager
def ends_interrupted() -> Iterator[None]:
    """A remembering block that must end in an interrupt, however it ends by itself."""
    with pytest.raises(KeyboardInterrupt), remembered():
        yield


def test_an_interrupt_that_was_lost_is_raised_by_the_next_check_and_on_leaving() -> None:
    reached = []
    with ends_interrupted():
        check()
        lose_an_interrupt()
        reached.append("after it")
        with pytest.raises(KeyboardInterrupt):
            check()
        reached.append("the end")
    assert reached == ["after it", "the end"]
    check()


@pytest.mark.parametrize("error", [RuntimeError("a library's own"), SystemExit(0)])
def test_what_an_interrupt_broke_is_no_news(error: BaseException) -> None:
    with ends_interrupted():
        lose_an_interrupt()
        raise error
    with pytest.raises(type(error)), remembered():
        raise error


def test_every_interrupt_is_raised_at_once() -> None:
    heard = 0
    with ends_interrupted():
        for _ in range(2):
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                heard += 1
    assert heard == 2


def test_what_must_be_whole_is_ended_first() -> None:
    reached = []
    with ends_interrupted():
        with unbroken():
            signal.raise_signal(signal.SIGINT)
            reached.append("its end")
        reached.append("more")
    assert reached == ["its end"]
    with ends_interrupted(), unbroken():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        reached.append("a second one does not wait")
    assert reached == ["its end"]


def test_cleaning_up_is_whole_for_one_who_asks_twice() -> None:
    reached = []
    with ends_interrupted():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            with unbroken():
                # Work inside such work, as one record is written, does not end the protection.
                with unbroken():
                    pass
                signal.raise_signal(signal.SIGTERM)
                reached.append("the summary")
            reached.append("never")
    assert reached == ["the summary"]
    with ends_interrupted():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            with unbroken():
                pass
            reached.append("and what follows it")
    assert reached == ["the summary", "and what follows it"]


@pytest.mark.parametrize("number", SIGNALS)
def test_the_handler_that_was_there_comes_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with remembered():
        assert signal.getsignal(number) is not before
    with pytest.raises(Interrupt) as told, remembered():
        signal.raise_signal(number)
    assert told.value.signal is number and signal.getsignal(number) is before


def test_the_first_signal_says_how_it_ended() -> None:
    def both() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupt) as told, remembered():
        both()
    assert told.value.signal is signal.SIGTERM


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_is_ignored_stays_so(number: signal.Signals) -> None:
    """As SIGHUP is under nohup."""
    signal.signal(number, signal.SIG_IGN)
    with remembered():
        signal.raise_signal(number)
        check()
        assert signal.getsignal(number) is signal.SIG_IGN


def test_another_thread_changes_nothing() -> None:
    seen = []

    def work() -> None:
        with remembered():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def _tick(events: Events) -> None:
    events.tick("next")


def _record(events: Events) -> None:
    events.record(decode_record())


def _record_a_failure(events: Events) -> None:
    events.record(decode_record(**unmeasured(decode_record(), Status.FAILED, "broken")))


@pytest.mark.parametrize(("say", "told"), [(_tick, []), (_record, ["passed"]), (_record_a_failure, [])])
def test_measuring_stops_and_keeps_what_is_finished(say: Callable[[Events], None], told: list[str]) -> None:
    """A record that an interrupt broke is not kept: its cell is measured again."""
    heard: list[str] = []
    events = interruptible(Events(lambda one: heard.append(one.status.value), heard.append, heard.append))
    with ends_interrupted():
        lose_an_interrupt()
        with pytest.raises(KeyboardInterrupt):
            say(events)
    assert heard == told
    heard.clear()
    say(events)
    assert len(heard) == 1
