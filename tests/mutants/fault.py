"""What a planted fault is, and its line in the table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A mistake that somebody could make, written into a copy of the package to see which test notices.

    Attributes:
        name: short, unique.
        means: what is wrong then, in the terms of the field.
        file: under `specla/`.
        old: stands in that file exactly once.
        new: what it becomes.
        caught_by: tests as pytest names them, under `tests/`; each passes without the fault and fails with it. Empty
            while no test is known to notice.
    """

    name: str
    means: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]

    @property
    def line(self) -> str:
        """Its line of the table, in markdown."""
        tests = "<br>".join(f"`{test}`" for test in self.caught_by) or "**survives**"
        return f"| {self.name} | {self.means} | `{self.file}` | {tests} |"
