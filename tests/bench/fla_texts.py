"""What the engines of flash-linear-attention decode, on a CPU: `python -m tests.bench.fla_texts FILE` writes it there.

In a process of its own, like `tests.models.fla_outputs`, whose interpreted kernels it takes; graphs are fakes.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from specla.bench.fla import FlaGenerate, FlaGraph, ForeignMethod
from specla.bench.fla_model import foreign_model
from specla.bench.measure import gate
from specla.bench.plan import plan
from specla.bench.subject import Subject, load_target
from specla.engine.decode import StopRule
from tests.bench.fake_graphs import FakeGraphs
from tests.models.fla_outputs import import_fla

UNFUSED = {"fuse_norm": False, "fuse_swiglu": False, "fuse_cross_entropy": False}
LIMIT = 4
WORDS = (
    "model=gdn-tiny model.tie_word_embeddings=false engine=fla-generate,fla-graph device=cpu dtype=float32",
    f"workload.batch=2 workload.max_new_tokens={LIMIT}",
)
CASES = {"greedy": "workload.prompts=2", "sampled": "workload.prompts=4 sampling.temperature=0.9 sampling.top_p=0.8"}
"""The second has an end of text besides, in the middle of one row."""


def decoded(case: str) -> dict[str, Any]:
    """Of both engines: what the gate found, and a timed window of every item."""
    cells = plan("bench e2e", " ".join((*WORDS, CASES[case])).split()).cells[1:]
    settings = cells[0].settings
    subject = Subject(load_target(settings.model, torch.float32, "cpu", settings.seed), settings, 0)
    if case == "sampled":
        subject.stop = StopRule(LIMIT, frozenset({subject.traces[0][1][2]}))
    model, found = foreign_model(subject.model, **UNFUSED), {}
    for cell in cells:
        method = made(cell.method.engine, cell, subject, model)
        result, counts = gate(method, subject.items)
        windows = [method.time(item) for item in subject.items]
        found[cell.method.engine] = {
            "lossless": result.lossless.value,
            "texts": [method.texts[item.index] for item in subject.items],
            "reference": [subject.reference(item) for item in subject.items],
            "counted": [counts.steps, counts.emitted, counts.drafted],
            "windows": [[one.tokens, one.steps, one.seconds] for one in windows],
            "departed": method.departed,
            "why": method.why,
        }
    return found


def made(engine: str, cell: Any, subject: Subject, model: Any) -> ForeignMethod:
    """The method of a cell, with interpreted kernels."""
    return FlaGenerate(cell, subject, model) if engine == "fla-generate" else FlaGraph(cell, subject, model, FakeGraphs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    import_fla()
    Path(sys.argv[1]).write_text(json.dumps({case: decoded(case) for case in CASES}), encoding="utf-8")
