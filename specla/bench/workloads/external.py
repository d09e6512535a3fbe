"""Workloads from the user's own copies: GSM8K, Spec-Bench, and any file or hub data set, read by `datasets`."""

import logging
from pathlib import Path
from typing import Any

from specla.bench.settings import WorkloadSettings
from specla.bench.workloads.base import Prompt
from specla.errors import SpeclaError

_BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "text"}


def gsm8k(settings: WorkloadSettings) -> list[Prompt]:
    """GSM8K (Cobbe et al., 2021): workload.path, or the hub's `openai/gsm8k`."""
    rows = _rows(settings, hub="openai/gsm8k", subset="main", split="test")
    column = settings.column or "question"
    return [
        Prompt(f"gsm8k-{i}", "maths", f"Question: {_cell(row, column, settings)}\nAnswer:")
        for i, row in enumerate(rows)
    ]


def spec_bench(settings: WorkloadSettings) -> list[Prompt]:
    """The first turns of Spec-Bench's 480 questions (Xia et al., 2024), from workload.path."""
    if settings.path is None:
        raise SpeclaError("workload=spec-bench: give workload.path=FILE, the questions of Spec-Bench (question.jsonl)")
    prompts = []
    for i, row in enumerate(_rows(settings)):
        turns = _cell(row, settings.column or "turns", settings)
        text = turns[0] if isinstance(turns, list) else turns
        prompts.append(
            Prompt(f"spec-bench-{row.get('question_id', i)}", str(row.get("category", "spec-bench")), str(text))
        )
    return prompts


def dataset(settings: WorkloadSettings) -> list[Prompt]:
    """Any file of JSON lines, JSON, CSV, Parquet or text, or any hub data set."""
    if settings.path is None and settings.dataset is None:
        raise SpeclaError("workload=dataset: give workload.path=FILE or workload.dataset=OWNER/NAME")
    prompts = []
    for i, row in enumerate(_rows(settings, hub=settings.dataset)):
        column = settings.column or next((name for name in ("prompt", "text", "question") if name in row), "prompt")
        prompts.append(
            Prompt(str(row.get("id", i)), str(row.get("category", "all")), str(_cell(row, column, settings)))
        )
    return prompts


def _cell(row: dict[str, Any], column: str, settings: WorkloadSettings) -> Any:
    if column not in row:
        source = settings.path or settings.dataset
        raise SpeclaError(f"workload.column={column}: {source} has {', '.join(row)}")
    return row[column]


def _rows(
    settings: WorkloadSettings, hub: str | None = None, subset: str | None = None, split: str = "train"
) -> list[dict[str, Any]]:
    import datasets
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    datasets.disable_progress_bars()
    # What goes wrong with a file is told in one line below; the library would add pages of its own.
    datasets.utils.logging.set_verbosity(logging.CRITICAL)
    if settings.path is not None:
        return _file_rows(Path(settings.path).expanduser(), datasets)
    try:
        return list(datasets.load_dataset(hub, settings.subset or subset, split=settings.split or split))
    except (DatasetsError, HfHubHTTPError, OSError, ValueError) as problem:
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        raise SpeclaError(
            f"workload={settings.name}: cannot load {hub} ({reason}); or give workload.path=FILE"
        ) from None


def _file_rows(path: Path, datasets: Any) -> list[dict[str, Any]]:
    if not path.is_file():
        raise SpeclaError(f"workload.path={path}: no such file")
    builder = _BUILDERS.get(path.suffix)
    if builder is None:
        raise SpeclaError(f"workload.path={path}: the ending must be one of {', '.join(_BUILDERS)}")
    if path.stat().st_size == 0:
        raise SpeclaError(f"workload.path={path}: the file is empty")
    if builder != "parquet":
        try:
            path.read_text(encoding="utf-8")
        except UnicodeDecodeError as damage:
            raise SpeclaError(
                f"workload.path={path}: not UTF-8 (byte {damage.start}); convert the file first"
            ) from None
    try:
        # In memory: a prompt file is small, and a cache would outlive an edit of it.
        rows = datasets.load_dataset(builder, data_files=str(path), split="train", keep_in_memory=True)
    except Exception as damage:  # the readers behind `datasets` raise many types for a malformed file
        reason = str(damage.__cause__ or damage).strip().splitlines()[0]
        raise SpeclaError(f"workload.path={path}: cannot be read as {path.suffix[1:]} ({reason})") from None
    return list(rows)
