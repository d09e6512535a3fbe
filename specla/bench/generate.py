"""Streaming generation: text is handed out as soon as a step has accepted it."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from specla.bench.cases.calibrate import Calibration
from specla.bench.cells import Cell, Plan
from specla.bench.clock import clock_for
from specla.bench.counting import counts
from specla.bench.estimate import does_not_fit, smaller
from specla.bench.inputs import model_notes
from specla.bench.measure import Method
from specla.bench.settings import GROUPS, dials
from specla.bench.stats import draft_efficiency, tau
from specla.bench.subject import Subject, Target, load_target, model_words, resolve_device, resolve_dtype
from specla.bench.workloads.prompt import Prompt
from specla.engine.decode import Step, StopRule
from specla.errors import SMALLER, MeasurementError, SpeclaError, is_out_of_memory, told


@dataclass(frozen=True)
class Summary:
    """How a generation went: one line for people, one document for programs, and what of the model was left unread."""

    line: str
    document: dict[str, Any]
    notes: tuple[str, ...] = ()


def stream(plan: Plan, prompt: str) -> Generator[str, None, Summary]:
    """The continuation of a prompt, piece by piece, and at the end its summary.

    Raises:
        SpeclaError: the plan has more than one cell or one that cannot run, the prompt is empty, or a model is missing.
        MeasurementError: the memory does not hold it.
    """
    cells = [cell for cell in plan.cells if cell.status == "pending"]
    if len(plan.cells) != 1:
        raise SpeclaError(f"generate: the overrides make {len(plan.cells)} cells; give one value each")
    _refuse_gpu(plan.cells[0].settings.device)
    if not cells:
        raise SpeclaError(f"generate: {plan.cells[0].reason}")
    if prompt.partition("=")[0] in (*GROUPS, *dials()) and "=" in prompt:
        raise SpeclaError(f"generate: {prompt[:60]} stands where the text to continue does; give the text first")
    if not prompt.strip():
        raise SpeclaError("generate: the prompt is empty; give some text to continue")
    if not prompt.isprintable() and any("\ud800" <= character <= "\udfff" for character in prompt):
        raise SpeclaError("generate: the prompt is not UTF-8; give text in UTF-8")
    if (batch := cells[0].settings.workload.batch) != 1:
        raise SpeclaError(f"workload.batch={batch}: generate goes on from one text; leave it out")
    model_notes(cells[0].settings.model, fetch=True)
    with _memory_told(cells[0]):
        return (yield from _stream(cells[0], prompt))


def _stream(cell: Cell, prompt: str) -> Generator[str, None, Summary]:
    settings = cell.settings
    device = resolve_device(settings.device, cell.command)
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    target = load_target(settings.model, resolve_dtype(settings.dtype, device), device, settings.seed)
    cell = _settled(cell, target)
    subject = Subject(target, settings, cell.tree.depth, [Prompt("prompt", "prompt", prompt)])
    method, item = Method(cell, subject), subject.items[0]
    decoding, steps, shown, tokens = method.start(item), list[Step](), "", item.start.roots[:]
    started = time.perf_counter()
    while not decoding.done:
        steps.append(decoding.step())
        tokens += steps[-1].emitted[0]
        text = target.tokenizer.decode(tokens)
        # A character may be cut between two tokens: hold back what does not decode yet.
        ready = text if decoding.done else text.rstrip("\ufffd")
        yield ready[len(shown) :]
        shown = ready
    if not steps:
        yield target.tokenizer.decode(tokens)
    seconds = time.perf_counter() - started
    notes = subject.notes
    if not decoding.flush().is_finite:
        notes += (f"{model_words(settings.model)}: its state is not finite any more, and the text means nothing",)
    return _summary(cell, target.tokenizer.decode(tokens), tokens, steps, seconds, subject.stop, notes)


def _summary(
    cell: Cell,
    text: str,
    tokens: Sequence[int],
    steps: Sequence[Step],
    seconds: float,
    stop: StopRule,
    notes: tuple[str, ...],
) -> Summary:
    counted = counts([("prompt", [(step, 0) for step in steps])])
    rate, ended = (len(tokens) - 1) / seconds if steps else None, tokens[-1] in stop.eos_token_ids
    document = {
        "schema": 1,
        "command": "generate",
        "text": text,
        "tokens": len(tokens),
        "end_of_text": ended,
        "tau": tau(counted),
        "draft_efficiency": draft_efficiency(counted),
        "tok_s": rate,
        "method": vars(cell.method),
    }
    if cell.choice is not None:
        document["why"] = cell.choice.told
    parts = [f"{len(tokens)} token" + "s" * (len(tokens) > 1)]
    parts += ["ended by end of text"] if ended else []
    parts += [] if rate is None else [f"{rate:.0f} tok/s", f"tau {tau(counted):.2f}"]
    used = f"{cell.method.verify}, {cell.method.drafter}, {cell.method.topology}"
    return Summary(f"{', '.join(parts)} ({used})", document, notes)


@contextmanager
def _memory_told(cell: Cell) -> Iterator[None]:
    """Inside, what the memory does not hold is told with what it would. Raises MeasurementError, at once if need be."""
    device = resolve_device(cell.settings.device, cell.command)
    dtype = str(resolve_dtype(cell.settings.dtype, device)).removeprefix("torch.")
    if reason := does_not_fit(cell, device, dtype, clock_for(device).free_bytes):
        raise MeasurementError(f"generate: {reason}")
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        advice = smaller(cell, device, dtype, clock_for(device).free_bytes)
        raise MeasurementError(f"generate: {told(error).replace(SMALLER, advice)}") from None


def _refuse_gpu(device: str) -> None:
    """Raise SpeclaError for a GPU, before anything else that cannot run there is blamed: nothing of generate does."""
    if device.startswith("cuda"):
        missing = "" if torch.cuda.is_available() else f"torch {torch.__version__} finds no CUDA device here, and "
        raise SpeclaError(
            f"device={device}: {missing}generate decodes on the CPU alone; give device=cpu, or decode on a GPU with "
            "specla bench e2e"
        )


def _settled(cell: Cell, target: Target) -> Cell:
    """The cell, the tree of topology=auto chosen on prompts of the workload."""
    if not cell.is_open:
        return cell
    calibration = Calibration(target, cell.settings, cell.tree.depth, [])
    calibration.require(cell)
    return calibration.settle(cell, None, lambda what: None)
