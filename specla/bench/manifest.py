"""The plan of a run as its config.yaml keeps it: which cells records.jsonl must hold, and whose lines may lie in it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specla.bench.codec import decode, encode
from specla.bench.lines import MEND, RecordFile
from specla.bench.record import Record
from specla.errors import SpeclaError

_SHOWN = 4
# Pure Python takes a second for the plan of a large sweep.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class PlannedCell:
    """One cell of the plan."""

    overrides: tuple[str, ...]
    group: str
    command: str
    fingerprint: str

    @classmethod
    def of(cls, record: Record) -> "PlannedCell":
        """A cell, by its record before it is measured."""
        return cls(record.overrides, record.group, record.command, record.fingerprint)


@dataclass(frozen=True)
class Manifest:
    """What a run's lines are held against.

    Attributes:
        cells: of the newest session.
        earlier: fingerprints of the sessions before it, of other code: their lines stay.
    """

    cells: tuple[PlannedCell, ...]
    earlier: tuple[str, ...] = ()

    @property
    def known(self) -> set[str]:
        """Every fingerprint that a line may have."""
        return {*self.earlier, *(cell.fingerprint for cell in self.cells)}

    def after(self, before: Collection[str]) -> "Manifest":
        """The same, of a folder whose lines had these fingerprints before."""
        return Manifest(self.cells, tuple(sorted({*before, *self.earlier} - {c.fingerprint for c in self.cells})))

    def check(self, found: RecordFile, where: str) -> None:
        """Raise SpeclaError, with its number, for a line of a cell that was never planned here."""
        known = self.known
        for record, number in zip(found.records, found.numbers, strict=True):
            if record.fingerprint not in known:
                cell = " ".join(record.overrides) or record.method.verify
                raise SpeclaError(f"{where}:{number}: a record of no cell that was planned here ({cell}); {MEND}")

    def missing(self, found: RecordFile, done: Collection[str] = ()) -> Iterator[str]:
        """One line for all cells that were planned and are not in the records; `done` were measured elsewhere."""
        held = {record.fingerprint for record in found.records}
        lost = [cell for cell in self.cells if cell.fingerprint not in held and cell.fingerprint not in done]
        if lost:
            shown = "; ".join(" ".join(cell.overrides) or cell.command for cell in lost[:_SHOWN])
            more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
            counted = "1 cell was" if len(lost) == 1 else f"{len(lost)} cells were"
            yield f"{counted} planned, and not even begun or deleted from the records: {shown}{more}"

    def to_yaml(self) -> str:
        """What config.yaml says of it."""
        return yaml.safe_dump(encode(self), sort_keys=False, default_flow_style=None, width=120)


def read_manifest(config: Path) -> Manifest | None:
    """The plan in a config.yaml; None where there is none, as in those of earlier versions.

    Raises SpeclaError for a damaged file.
    """
    try:
        data = yaml.load(config.read_bytes(), Loader=_Loader)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SpeclaError(f"{config}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise SpeclaError(f"{config}: damaged, not YAML; restore it, or measure again into another --out") from None
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list) or not any(isinstance(cell, dict) and "fingerprint" in cell for cell in cells):
        return None
    manifest: Manifest = decode(Manifest, {"cells": cells, "earlier": data.get("earlier") or []}, str(config))
    return manifest
