"""Workloads from the user's own copies: GSM8K, Spec-Bench, and any file or hub data set."""

from specla.bench.settings import WorkloadSettings
from specla.bench.workloads.base import Prompt
from specla.bench.workloads.files import cell, file_rows, hub_rows
from specla.errors import SpeclaError

_USUAL_COLUMNS = ("prompt", "text", "question")


def gsm8k(settings: WorkloadSettings) -> list[Prompt]:
    """GSM8K (Cobbe et al., 2021) from workload.path: questions, put as the bundled model's texts put them."""
    texts = [cell(row, settings.column or "question", settings) for row in file_rows(_path(settings))]
    return [Prompt(f"gsm8k-{i}", "maths", f"Question: {text}\nAnswer:") for i, text in enumerate(texts)]


def spec_bench(settings: WorkloadSettings) -> list[Prompt]:
    """The first turns of Spec-Bench's 480 questions (Xia et al., 2024), from workload.path."""
    prompts = []
    for i, row in enumerate(file_rows(_path(settings))):
        turns = row.get("turns")
        first = {**row, "turns": turns[0]} if isinstance(turns, list) and turns else row
        text = cell(first, settings.column or "turns", settings)
        prompts.append(Prompt(f"spec-bench-{row.get('question_id', i)}", str(row.get("category", "spec-bench")), text))
    return prompts


def dataset(settings: WorkloadSettings) -> list[Prompt]:
    """Any file of JSON lines, JSON, CSV, Parquet or text, or any hub data set."""
    prompts = []
    for i, row in enumerate(hub_rows(settings) if settings.path is None else file_rows(settings.path)):
        column = settings.column or next((name for name in _USUAL_COLUMNS if name in row), _USUAL_COLUMNS[0])
        prompts.append(Prompt(str(row.get("id", i)), str(row.get("category", "all")), cell(row, column, settings)))
    return prompts


def _path(settings: WorkloadSettings) -> str:
    if settings.path is None:
        raise SpeclaError(f"workload={settings.name}: give workload.path=FILE, your copy of its questions")
    return settings.path
