"""The appendix of a report: kernels by part, the dearest, and reports that have none."""

from dataclasses import replace
from pathlib import Path

import pytest

from specla.bench.kernel_times import KernelTime
from specla.errors import SpeclaError
from specla.report.build import build_report
from specla.report.style import Plot
from tests.factory import ar_record, cell_profile, decode_record, write_run


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plot, "png", lambda *_: None)


def texts(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_appendix_tells_parts_and_the_dearest_kernels(tmp_path: Path) -> None:
    record = decode_record(overrides=("engine.verify=tree",))
    many = tuple(KernelTime(f"elementwise<{i}>|`{'x' * 90}", "other", 1.0, 0.1) for i in range(12))
    profile = cell_profile(record)
    run = write_run(tmp_path, [ar_record(), record], profiles=[replace(profile, kernels=(*profile.kernels, *many))])
    text = (build_report([run], tmp_path / "out").path / "report.md").read_text()
    appendix = text[text.index("\n## Appendix: kernels of a cycle\n") :]
    assert text.index("## Measured on") < text.index("## Appendix")
    assert "a kernel begins while the one before it ends" in appendix and "more than a cycle takes" in appendix
    assert (
        "### tree oracle chain-d3 heldout, batch 1, 4 nodes\n\n`engine.verify=tree`: a cycle took 400.0 us" in appendix
    )
    assert "481.2 us summed over kernels (4 cycles)" in appendix
    assert "| products | 360.0 | 74.8% | 900.0 | 2,500 |" in appendix
    assert "| delta rule | 120.0 | 24.9% | - | - |" in appendix and "| other | 1.2 | 0.2% | - | - |" in appendix
    assert "| `matrix_kernel` | products | 72 | 5.00 | 360.0 |\n| `walk_kernel` | delta rule | 24 | 5.00 | 120.0 |" in (
        appendix
    )
    assert appendix.count("| `elementwise") == 8
    assert all(len(line) < 140 for line in appendix.splitlines() if line.startswith("| `elementwise"))
    assert text.endswith("`specla report` on this folder rebuilds the report.\n")


def test_a_report_with_profiles_is_rebuilt_to_the_byte(tmp_path: Path) -> None:
    record = decode_record()
    run = write_run(tmp_path, [ar_record(), record], profiles=[cell_profile(record), cell_profile(ar_record())])
    first = build_report([run], tmp_path / "out")
    before = texts(first.path)
    assert before[f"records/{run.name}/profile.json"] == (run / "profile.json").read_bytes()
    assert texts(build_report([first.path], tmp_path / "again" / "out").path) == before
    assert texts(build_report([first.path], first.path).path) == before


def test_a_report_without_profiles_has_no_appendix(tmp_path: Path) -> None:
    records = [ar_record(), decode_record()]
    plain = texts(build_report([write_run(tmp_path / "a", records)], tmp_path / "a" / "out").path)
    stale = cell_profile(decode_record(fingerprint="of other code"))
    run = write_run(tmp_path / "b", records, profiles=[stale])
    assert texts(build_report([run], tmp_path / "b" / "out").path)["report.md"] == plain["report.md"]
    assert b"Appendix" not in plain["report.md"]


def test_a_damaged_profile_is_one_line(tmp_path: Path) -> None:
    run = write_run(tmp_path, [ar_record()])
    (run / "profile.json").write_text("[{")
    with pytest.raises(SpeclaError, match=r"profile\.json: damaged .*delete it: a report can do without$") as caught:
        build_report([run], tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()
