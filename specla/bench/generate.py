"""Streaming generation: text is handed out as soon as a step has accepted it."""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch

from specla.bench.cases.calibrate import Calibration
from specla.bench.cells import Cell, Plan
from specla.bench.counting import counts
from specla.bench.measure import Method
from specla.bench.stats import draft_efficiency, tau
from specla.bench.subject import Subject, Target, load_target, resolve_device, resolve_dtype
from specla.bench.workloads.base import Prompt
from specla.errors import SpeclaError


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
    """
    cells = [cell for cell in plan.cells if cell.status == "pending"]
    if len(plan.cells) != 1:
        raise SpeclaError(f"generate: the overrides make {len(plan.cells)} cells; give one value each")
    _refuse_gpu(plan.cells[0].settings.device)
    if not cells:
        raise SpeclaError(f"generate: {plan.cells[0].reason}")
    if not prompt.strip():
        raise SpeclaError("generate: the prompt is empty; give some text to continue")
    settings = cells[0].settings
    device = resolve_device(settings.device, cells[0].command)
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    target = load_target(settings.model, resolve_dtype(settings.dtype, device), device, settings.seed)
    cell = _settled(cells[0], target)
    subject = Subject(target, settings, cell.tree.depth, [Prompt("prompt", "prompt", prompt)])
    method, item = Method(cell, subject), subject.items[0]
    decoding, steps, shown, tokens = method.start(item), [], "", item.start.roots[:]
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
    counted = counts([("prompt", [(step, 0) for step in steps])])
    emitted, efficiency = len(tokens) - 1, draft_efficiency(counted)
    document = {
        "schema": 1,
        "command": "generate",
        "text": target.tokenizer.decode(tokens),
        "tokens": len(tokens),
        "tau": tau(counted),
        "draft_efficiency": efficiency,
        "tok_s": emitted / seconds if steps else None,
        "method": vars(cells[0].method),
    }
    if cell.choice is not None:
        document["why"] = cell.choice.told
    used = f"{cells[0].method.verify}, {cells[0].method.drafter}, {cells[0].method.topology}"
    rate = f"{emitted / seconds:.0f} tok/s, tau {tau(counted):.2f}" if steps else "one token"
    return Summary(f"{len(tokens)} tokens, {rate} ({used})", document, target.notes)


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
