"""Rows of prompt files and hub data sets, read by `datasets`; every mistake in them is one line."""

import logging
from pathlib import Path
from typing import Any

from specla.bench.settings import WorkloadSettings
from specla.errors import SpeclaError, first_line

_BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}


def cell(row: dict[str, Any], column: str, settings: WorkloadSettings) -> str:
    """The text in a column of a row. Raises SpeclaError where there is no such column or it holds no text."""
    source = settings.path or settings.dataset
    if column not in row:
        raise SpeclaError(f"workload.column={column}: {source} has {', '.join(row)}; set it to one of these")
    value = row[column]
    if not isinstance(value, str):
        raise SpeclaError(f"workload.column={column}: {source} holds {value!r} there, which is no text")
    return value


def file_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, JSON, CSV, Parquet or text (a row a line, in the column `text`)."""
    path = Path(name).expanduser()
    if not path.is_file():
        raise SpeclaError(f"workload.path={path}: no such file")
    builder = _BUILDERS.get(path.suffix)
    if builder is None:
        raise SpeclaError(f"workload.path={path}: the ending must be one of {', '.join(_BUILDERS)}")
    if path.stat().st_size == 0:
        raise SpeclaError(f"workload.path={path}: the file is empty")
    if builder != "parquet":
        try:
            blank = not path.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError as damage:
            raise SpeclaError(f"workload.path={path}: not UTF-8 (byte {damage.start}); convert it first") from None
        if blank:
            raise SpeclaError(f"workload.path={path}: the file holds white space alone")
    datasets = _library()
    try:
        # In memory: a prompt file is small, and a cache would outlive an edit of it.
        rows = datasets.load_dataset(builder, data_files=str(path), split="train", keep_in_memory=True)
    except Exception as damage:  # the readers behind `datasets` raise many types for a malformed file
        reason = first_line(damage.__cause__ or damage)
        raise SpeclaError(f"workload.path={path}: cannot be read as {path.suffix[1:]} ({reason})") from None
    return list(rows)


def hub_rows(settings: WorkloadSettings) -> list[dict[str, Any]]:
    """The rows of `workload.dataset`, its split `train` unless another is given."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    try:
        name, split = settings.dataset, settings.split or "train"
        return list(_library().load_dataset(name, settings.subset, split=split))
    except (DatasetsError, HfHubHTTPError, OSError, ValueError) as problem:
        reason = first_line(problem)
        raise SpeclaError(f"workload.dataset={settings.dataset}: cannot be loaded ({reason})") from None


def _library() -> Any:
    import datasets

    datasets.disable_progress_bars()
    # What goes wrong is told in one line here; the library would add pages of its own.
    datasets.utils.logging.set_verbosity(logging.CRITICAL)
    return datasets
