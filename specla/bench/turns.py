"""One side of a side-by-side measurement: a process that decodes one short window at a time, when it is told to.

`specla.bench.sidebyside` runs two of them, each from its own checkout, and gives them turns. Lines of JSON go both
ways:

    {"cells": [...], "env": {...}, ...}            first, unasked
    {"gate": CELL}          -> {"record": ...}     decode to the end: lossless, counts, bytes
    {"time": [CELL, ITEM]}  -> {"seconds", "tokens", "steps", "split_us", "verify_us", "commit_us", "departed"}

It ends when its input does. An answer {"error": ...} is a line for the user. The protocol changes with PROTOCOL alone,
so that commits can be compared whose insides differ.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, TextIO

import torch
import yaml

import specla
from specla.bench.cases.blocks import label
from specla.bench.cases.e2e import EndToEnd
from specla.bench.cells import Cell, Plan
from specla.bench.machine import machine_record
from specla.bench.measure import Method, gate
from specla.bench.plan import plan
from specla.bench.record import Bytes, Lossless, Record, Status, to_json
from specla.bench.run import Prepared, prepare
from specla.bench.settings import to_plain
from specla.bench.subject import Item, Subject
from specla.engine.decode import Decoding
from specla.errors import SpeclaError, told
from specla.models.cost import ModelCost

PROTOCOL = 1
COMMAND = "bench e2e"


class Seat:
    """One cell that can take a turn, its verification and its commits on clocks of their own.

    Args:
        cell: to be decoded.
        subject: what it decodes.
        planned: its record before anything is measured.
    """

    def __init__(self, cell: Cell, subject: Subject, planned: Record) -> None:
        self.cell, self.subject, self.planned = cell, subject, planned
        self.method = Method(cell, subject)
        self._verify_us: list[float] = []
        self._commit_us: list[float] = []
        self.method.verify.verify = _clocked(self.method.verify.verify, self._verify_us)  # type: ignore[method-assign]
        start = self.method.start

        def clocked_start(item: Item) -> Decoding:
            decoding = start(item)
            commit = _clocked(decoding.recovery.commit, self._commit_us)
            decoding.recovery.commit = commit  # type: ignore[method-assign]
            return decoding

        self.method.start = clocked_start  # type: ignore[method-assign]

    def gate(self) -> Record:
        """Decode everything to its end: the record with what was found, pending until it is timed, or failed."""
        try:
            result, counts = gate(self.method, self.subject.items)
        except (SpeclaError, RuntimeError, ValueError, AssertionError) as error:
            return replace(self.planned, status=Status.FAILED, reason=told(error))
        found = replace(
            self.planned,
            lossless=result.lossless,
            near_ties=result.near_ties,
            gate_positions=result.positions,
            counts=counts,
            bytes=self._bytes(),
        )
        if result.lossless is Lossless.FAILED:
            return replace(found, status=Status.FAILED, reason=f"not lossless: {result.reason}")
        return found

    def _bytes(self) -> Bytes:
        """What the cell holds, and what one of its steps must move."""
        batch, model = self.planned.batch, self.subject.model
        cost = ModelCost.of(model.config, model.dtype)
        state = batch * (cost.state_bytes + cost.window_bytes)
        return Bytes(state, cost.weight_bytes, cost.step(batch, self.planned.nodes).total_bytes)

    def time(self, item: int) -> dict[str, Any]:
        """Decode one item until a row ends, on the clock.

        `verify_us` is the median over the calls of the verification, one a layer and step, and `commit_us` over the
        commits, one a step: a call during which the machine was elsewhere does not count. `departed` says where the
        window emitted something else than the gate saw.
        """
        self._verify_us.clear()
        self._commit_us.clear()
        timed = self.method.time(self.subject.items[item])
        return {
            "seconds": timed.seconds,
            "tokens": timed.tokens,
            "steps": timed.steps,
            "split_us": asdict(timed.split),
            "verify_us": median(self._verify_us) if self._verify_us else None,
            "commit_us": median(self._commit_us) if self._commit_us else None,
            "departed": self.method.departed,
        }


def _clocked(call: Callable[..., Any], taken_us: list[float]) -> Callable[..., Any]:
    """The same call, which adds the time that it took to a list."""

    def timed(*inputs: Any, **more: Any) -> Any:
        started = time.perf_counter()
        output = call(*inputs, **more)
        taken_us.append((time.perf_counter() - started) * 1e6)
        return output

    return timed


def serve(words: list[str], config_dir: str | None, inlet: TextIO, outlet: TextIO) -> None:
    """Introduce the cells of a plan, then answer line by line until the input ends."""

    def answer(message: dict[str, Any]) -> None:
        outlet.write(json.dumps(message, separators=(",", ":")) + "\n")
        outlet.flush()

    try:
        planned, note = _plan(words, config_dir)
        prepared = prepare(planned)
        seats = seats_of(prepared)
        answer(_introduction(prepared, seats, note))
        with torch.inference_mode():
            for seat in seats:
                assert seat.subject.traces
        gc.collect()
        gc.disable()
        answer({"ready": True})
        for line in inlet:
            message = json.loads(line)
            if "gate" in message:
                answer({"record": to_json(seats[message["gate"]].gate())})
            else:
                cell, item = message["time"]
                answer(seats[cell].time(item))
    except SpeclaError as error:
        answer({"error": str(error)})


def _plan(words: list[str], config_dir: str | None) -> tuple[Plan, str]:
    """The plan with the configuration that both sides get, or this checkout's own where that does not compose here."""
    try:
        return plan(COMMAND, words, config_dir), ""
    except SpeclaError as error:
        if config_dir is None:
            raise
        return plan(COMMAND, words), f"planned by its own configuration, since the other's does not compose: {error}"


def seats_of(prepared: Prepared) -> list[Seat]:
    """A seat for every cell of a plan, and torch on as many threads as it says."""
    settings = prepared.plan.cells[0].settings
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    works = [work for work in prepared.works if isinstance(work, EndToEnd)]
    return [Seat(cell, work.subject, prepared.planned[cell.config_hash]) for work in works for cell in work.cells]


def _introduction(prepared: Prepared, seats: list[Seat], note: str) -> dict[str, Any]:
    """Everything that the other end needs to keep the books: no later answer names a cell."""
    settings = prepared.plan.cells[0].settings
    places = {seat.cell.config_hash: place for place, seat in enumerate(seats)}
    cells = [
        {
            "record": to_json(seat.planned),
            "label": label(seat.cell),
            "ar": places[seat.cell.ar_hash or ""],
            "items": [{"prompts": item.prompts, "category": item.category} for item in seat.subject.items],
        }
        for seat in seats
    ]
    return {
        "protocol": PROTOCOL,
        "package": str(Path(specla.__file__).resolve().parent),
        "note": note,
        "env": machine_record("cpu", settings.threads),
        "config": yaml.safe_dump({"first": to_plain(settings)}, sort_keys=False, default_flow_style=None, width=120),
        "cells": cells,
    }


@contextmanager
def _own_stdout() -> Iterator[TextIO]:
    """The stdout that answers go to; whatever else writes to stdout from now on writes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as outlet:
        os.dup2(2, 1)
        yield outlet


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    with _own_stdout() as own:
        serve(asked["words"], asked["config_dir"], sys.stdin, own)
