"""Tables on narrow terminals: no number on two lines, no word squeezed to a letter a line."""

from textwrap import wrap

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

LEAST_WORD = 8
"""Columns that a word may be folded into."""
_SOLID = "\u00a0"


def show_table(shown: Console, table: Table) -> None:
    """Print a table of markup; where the terminal is too narrow for it, a paragraph a row instead."""
    for column in table.columns:
        column.no_wrap = _is_value(column)
    gaps = (len(table.columns) - 1) * (1 + 2 * table.padding[1])
    if sum(map(_least_width, table.columns)) + gaps <= shown.width:
        shown.print(table)
        return
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        told = [(column, Text.from_markup(str(cell)).plain) for column, cell in zip(table.columns, cells, strict=True)]
        names = " ".join(text for column, text in told if text and not _is_value(column))
        # What belongs to a number stays on its line: a space that is none to who wraps.
        values = [f"{column.header} {text}".replace(" ", _SOLID) for column, text in told if text and _is_value(column)]
        lines = [
            *wrap(names, shown.width),
            *wrap(", ".join(values), shown.width, initial_indent="  ", subsequent_indent="  "),
        ]
        shown.print(Text("\n".join(lines).replace(_SOLID, " ")))


def _is_value(column: Column) -> bool:
    """Whether a column holds numbers, or what goes with them."""
    return column.no_wrap or column.justify == "right"


def _least_width(column: Column) -> int:
    texts = [Text.from_markup(str(text)) for text in (column.header, *column.cells)]
    if _is_value(column):
        return max(text.cell_len for text in texts)
    return max(min(LEAST_WORD, len(word)) for text in texts for word in (text.plain.split() or [""]))
