"""`specla ablate` as a user meets it: what is planned, what is told, what is left behind."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from specla.bench.plan import plan
from specla.cli.kernels import kernel_lines
from specla.ops.verify.hybrid import Hybrid
from specla.ops.verify.tree import TreeMask
from tests.cli.conftest import Run

SMALL = "experiment=null model=gdn-tiny measure=quick measure.sample_ms=0.2 threads=1"


@pytest.mark.parametrize(
    ("command", "cells"),
    [
        ("ablate verify", 2 * 3 * (7 + 6)),
        ("ablate recover", 2 * (7 * 4 + 4 * 4)),
        ("ablate defer", 3 * 3 * (2 + 2)),
        ("ablate acceptance", 2 * 8 + 1),
        ("ablate length", 2 * 6 + 1),
        ("bench paper", None),
        ("bench all", None),
        ("bench gpu", None),
    ],
)
def test_a_dry_run_of_every_preset(command: str, cells: int | None, run: Run, tmp_path: Path) -> None:
    code, out, _ = run(f"specla {command} --dry-run --json")
    document = json.loads(out.splitlines()[-1])
    assert code == 0 and list(tmp_path.iterdir()) == []
    assert document["command"] == command and "nothing was run" in out
    if cells is not None:
        assert [cell["status"] for cell in document["cells"]] == ["pending"] * cells
        assert {cell["group"] for cell in document["cells"]} == {command.split()[1]}


def test_what_the_presets_turn() -> None:
    def cells(command: str) -> list[Any]:
        return [cell for cell in plan(command, []).cells if cell.method.verify != "ar"]

    assert {cell.tree.nodes for cell in cells("ablate verify")} == {4, 8, 16, 32}
    assert {cell.settings.workload.batch for cell in cells("ablate verify")} == {1, 8}
    chains = [cell for cell in cells("ablate recover") if cell.tree.is_chain]
    assert {cell.settings.measure.accepted for cell in chains} == set(range(1, 8))
    assert {cell.settings.workload.batch for cell in cells("ablate defer")} == {1, 8, 32}
    swept = cells("ablate acceptance")
    assert {cell.tree.is_chain for cell in swept} == {True, False}
    assert {cell.settings.drafter.alpha for cell in swept if not cell.tree.is_chain} >= {0.0, 0.7, 1.0}


def test_a_run_its_table_and_its_document(run: Run, tmp_path: Path) -> None:
    words = f"specla ablate verify {SMALL} topology=chain,kary topology.nodes=6 engine.verify=tree,chain --json"
    code, out, _ = run(words)
    document = json.loads(out.splitlines()[-1])
    assert code == 0 and document["status"] == "passed" and document["command"] == "ablate verify"
    tree = next(cell for cell in document["cells"] if cell["nodes"] == 6 and cell["method"]["verify"] == "tree")
    assert set(tree["ratio"]) == {"sequential_replay", "naive_batched", "parent_pointer"}
    assert {"error_rms", "accepted", "bytes", "time_us", "floor_us", "x_floor"} <= set(tree)
    lines = out.splitlines()
    assert lines[0].startswith("verify: microseconds a layer; ratio: sequential_replay's time over it")
    assert "chain-l4, 5 nodes, batch 1" in lines and "kary-b2-n6, 6 nodes, batch 1" in lines
    assert any(line.startswith("not applicable: chain verifies chains only") for line in lines)
    folder = next((tmp_path / "runs").iterdir())
    assert folder.name.startswith("ablate-verify-") and "null" not in folder.name
    assert json.loads((folder / "summary.json").read_text())["cells"] == document["cells"]
    code, again, err = run(words)
    assert code == 0 and "4 of 4 cells were measured earlier" in err
    assert json.loads(again.splitlines()[-1]) == document


def test_a_wrong_strategy_ends_with_4(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    right = TreeMask.verify
    monkeypatch.setattr(
        TreeMask, "verify", lambda self, *inputs: right(self, *inputs)._replace(out=inputs[1].v.float())
    )
    code, out, err = run(f"specla ablate verify {SMALL} engine.verify=tree,hybrid")
    assert code == 4
    told = "relative RMS error"
    assert any(line.startswith("failed: ") and told in line for line in err.splitlines())
    assert any(line.startswith(f"failed: {told}") for line in out.splitlines())
    assert any(line.split()[:2] == ["tree", "failed"] for line in out.splitlines())


def test_a_part_that_fails_leaves_the_others_to_the_report(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Hybrid.verify
    monkeypatch.setattr(Hybrid, "verify", lambda self, *inputs: right(self, *inputs)._replace(out=inputs[1].v.float()))
    words = "model=gdn-tiny measure.sample_ms=0.2 workload.batch=1 topology.nodes=8 engine.verify=hybrid"
    code, out, _ = run(f"specla bench all experiment=bench-verify,bench-recover,bench-defer {words} --json")
    document = json.loads(out.splitlines()[-1])
    assert (code, document["status"], document["command"]) == (4, "failed", "bench all")
    statuses: dict[str, set[str]] = {}
    for cell in document["cells"]:
        statuses.setdefault(cell["group"], set()).add(cell["status"])
    assert statuses.keys() == {"verify", "recover", "defer"}
    assert statuses["verify"] == {"failed"} and "passed" in statuses["recover"]
    code, out, _ = run("specla report")
    text = Path(out.strip()).read_text()
    assert code == 0 and "Status: **failed**" in text
    claims = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    unmeasured = "no cell measures it"
    assert unmeasured in claims["VERIFY"] and unmeasured not in claims["RECOVER"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("ablate verify topology.lenght=3", "did you mean 'topology.length'"),
        ("ablate recover measure.accepted=-1", "measure.accepted=-1: give 0 or more"),
        ("ablate defer engine.ring=0", "engine.ring=0: give 1 or more"),
        ("ablate acceptance drafter.alpha=2", "from 0 to 1"),
        ("bench paper experiment=smoke", "bench paper runs its own"),
    ],
)
def test_bad_words(words: str, told: str, run: Run, tmp_path: Path) -> None:
    code, out, err = run(f"specla {words}")
    assert code == 2 and told in err and err.count("\n") == 1 and out == ""
    assert list(tmp_path.iterdir()) == []


def kernel_cell(verify: str, recover: str, group: str, **changes: Any) -> dict[str, Any]:
    """As the document has it, with long names and numbers."""
    interval = {"median": 66042.3, "low": 63044.1, "high": 71988.9, "n": 10}
    ratio = {"median": 0.17, "low": 0.16, "high": 0.21, "n": 10}
    cell = {
        "group": group,
        "method": {
            "verify": verify,
            "recover": recover,
            "topology": "kary-b2-n32",
            "drafter": "none",
            "engine": "specla",
        },
        "nodes": 32,
        "batch": 32,
        "model": "gdn-mini",
        "dtype": "float32",
        "status": "passed",
        "overrides": ["engine.verify=tree"],
        "why": "",
        "accepted": None if group == "verify" else 4,
        "time_us": interval,
        "x_floor": 496.8,
        "error_rms": 1.4e-7,
        "ratio": dict.fromkeys(("sequential_replay", "replay_tokens", "factors"), ratio),
    }
    return {**cell, **changes}


def shown(cells: list[dict[str, Any]], width: int) -> list[str]:
    console = Console(width=width, highlight=False, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for line in kernel_lines(cells):
        console.print(line, soft_wrap=True)
    return console.export_text().splitlines()


def test_tables_fit_80_columns() -> None:
    cells = [
        *(kernel_cell(name, "factors", "verify") for name in ("sequential_replay", "naive_batched", "tree")),
        kernel_cell("auto", "factors", "verify", why="auto: hybrid, because it took 3 us"),
        *(kernel_cell(name, "replay_tokens", "recover") for name in ("chain", "tree", "parent_pointer")),
        *(kernel_cell("hybrid", name, "defer") for name in ("factors", "factors_deferred")),
        *(
            kernel_cell("hybrid", "factors_lazy", "defer", overrides=[f"engine.ring={ring}"], dtype="bfloat16")
            for ring in (16, 128)
        ),
    ]
    for width in (80, 120):
        lines = shown(cells, width)
        assert max(len(line) for line in lines) <= 80
        assert "  auto (hybrid)      66042 [63044, 71989]      497  0.17x [0.16, 0.21]  1e-07" in lines
        assert lines.count("  replay_tokens  66042 [63044, 71989]      497  baseline      1e-07") == 3
        assert "kary-b2-n32, 32 nodes, batch 32, 4 accepted after parent_pointer" in lines
        assert "kary-b2-n32, 32 nodes, batch 32, 4 accepted after hybrid, gdn-mini, bfloat16" in lines
        assert any(line.startswith("  factors_lazy, R=128  ") for line in lines)


def test_what_did_not_pass_has_no_figures() -> None:
    nothing = {"time_us": None, "x_floor": None, "ratio": {}}
    cells = [
        kernel_cell("tree", "factors", "verify", status="failed", error_rms=3e-3, **nothing),
        kernel_cell("chain", "factors", "verify", status="not_applicable", **nothing),
        kernel_cell("hybrid", "factors", "verify", status="inconclusive"),
        kernel_cell("naive_batched", "replay_tokens", "verify", status="pending", error_rms=None, **nothing),
    ]
    lines = shown(cells, 80)
    assert [line.split() for line in lines if line.startswith("  tree")] == [["tree", "failed", "3e-03"]]
    assert not any("chain" in line.split() for line in lines)
    assert [line.split() for line in lines if line.startswith("  naive")] == [["naive_batched", "pending"]]
    assert shown([], 80) == []
