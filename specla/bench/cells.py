"""The cells of a run, and the commands that have any."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from specla.bench.choice import TreeChoice
from specla.bench.normalise import END_TO_END
from specla.bench.profile import profile_name
from specla.bench.settings import Settings
from specla.bench.strategies import AUTO
from specla.bench.validate import show
from specla.topology import DraftTree

COMMANDS: Mapping[str, tuple[tuple[str, str | None], ...]] = {
    "generate": (("generate", None),),
    "bench e2e": ((END_TO_END, None),),
    "bench all": (
        (END_TO_END, "bench"),
        ("ablate verify", "bench-verify"),
        ("ablate recover", "bench-recover"),
        ("ablate defer", "bench-defer"),
    ),
    "bench gpu": (
        (END_TO_END, "gpu-e2e"),
        (END_TO_END, "gpu-batch"),
        (END_TO_END, "gpu-mini"),
        (END_TO_END, "gpu-fla"),
        ("ablate verify", "gpu-verify"),
        ("ablate recover", "gpu-recover"),
        ("ablate defer", "gpu-defer"),
    ),
    "bench paper": (
        (END_TO_END, "paper-e2e"),
        ("ablate verify", "paper-verify"),
        ("ablate recover", "paper-recover"),
        ("ablate defer", "paper-defer"),
        (END_TO_END, "paper-accept"),
        (END_TO_END, "paper-perfect"),
    ),
    "ablate verify": (("ablate verify", "ablate-verify"),),
    "ablate recover": (("ablate recover", "ablate-recover"),),
    "ablate defer": (("ablate defer", "ablate-defer"),),
    "ablate acceptance": ((END_TO_END, "ablate-acceptance"),),
    "ablate length": ((END_TO_END, "ablate-length"),),
}
"""What each command runs: (the kind of measurement, the experiment that it starts from)."""


@dataclass(frozen=True)
class Method:
    """The labels of a cell's method, as records and reports show them."""

    verify: str
    recover: str
    drafter: str
    topology: str
    engine: str


@dataclass(frozen=True)
class Cell:
    """One thing to measure."""

    command: str
    """The kind of measurement: END_TO_END, one of KERNEL_COMMANDS, or generate, whatever the run's command is."""
    settings: Settings
    """In normal form."""
    tree: DraftTree
    method: Method
    overrides: tuple[str, ...]
    """The fewest words that compose this cell."""
    group: str
    """The experiment's section it belongs to, or `main`."""
    config_hash: str
    ar_hash: str | None
    """The config_hash of the AR cell that it is compared with, or None where there is none."""
    status: Literal["pending", "not_applicable"] = "pending"
    reason: str = ""
    choice: TreeChoice | None = None
    """topology=auto: how `tree` was chosen; None while it stands for all trees of as many nodes."""

    @property
    def is_open(self) -> bool:
        """Whether its tree is still to be chosen, by measuring: `tree` then has the most nodes and levels it may."""
        return self.settings.topology.name == AUTO and self.choice is None

    @property
    def drafter_label(self) -> str:
        """Its drafter, with the acceptance that was asked for and the tokens that it drafts from."""
        drafter, asked = self.settings.drafter, None
        if drafter.profile is not None:
            asked = str(profile_name(drafter))
        elif drafter.alpha is not None:
            asked = show(drafter.alpha)
        return drafter_words(drafter.name, asked, drafter.cost == "aligned", str(drafter.vocabulary or ""))


def asked(cells: Iterable[Cell]) -> list[Cell]:
    """The cells that were asked for: AR comes along with what is compared with it, and counts where it is alone."""
    cells = list(cells)
    return [cell for cell in cells if cell.config_hash != cell.ar_hash] or cells


def drafter_words(name: str, asked: str | None, paid: bool, vocabulary: str) -> str:
    """A drafter with the acceptance that was asked for, whether its work is paid for, and how many tokens it knows."""
    return " ".join(filter(None, (name, asked, "paid" * paid, vocabulary)))


@dataclass(frozen=True)
class Plan:
    """The cells of one run, in the order in which they are measured."""

    command: str
    words: tuple[str, ...]
    """What the user typed."""
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]
    """What was not used, changed or dropped: one line each, to be printed and recorded."""

    @cached_property
    def config_hash(self) -> str:
        """Sixty-four hexadecimal digits of the command and all cells' configurations."""
        text = "\n".join([self.command, *sorted(cell.config_hash for cell in self.cells)])
        return hashlib.sha256(text.encode()).hexdigest()
