"""Rows of a profiler as kernels and parts, and the file that holds them."""

import ast
import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from specla.bench.kernel_times import OTHER, PARTS, part_of, read_profiles, times_of
from specla.errors import SpeclaError
from tests.factory import cell_profile, decode_record, write_run

KERNELS = Path(__file__).parents[2] / "specla" / "ops" / "kernels"


@dataclass
class Averages:
    """A row as torch's profiler has it."""

    key: str
    count: int
    self_device_time_total: float


def test_rows_become_kernels_of_a_cycle_the_dearest_first() -> None:
    rows = [
        Averages("cudaGraphLaunch", 4, 0.0),
        Averages("walk_kernel", 96, 480.0),
        Averages("nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", 4, 800.0),
        Averages("void at::native::vectorized_elementwise_kernel<4>", 6, 12.0),
    ]
    found = times_of(rows, 4)
    assert [(one.part, one.calls, one.time_us) for one in found] == [
        ("products", 1.0, 200.0),
        ("delta rule", 24.0, 5.0),
        (OTHER, 1.5, 2.0),
    ]
    assert [one.cycle_us for one in found] == [200.0, 120.0, 3.0]
    for none in ([], rows[:1]):
        with pytest.raises(SpeclaError, match="saw no kernel"):
            times_of(none, 4)


def test_every_kernel_of_ours_has_a_part() -> None:
    trees = [ast.parse(path.read_text()) for path in KERNELS.glob("*.py") if path.name != "bandwidth.py"]
    names = {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel") and node.decorator_list
    }
    assert {name for name in names if part_of(name) == OTHER} == set()
    assert {name for part in PARTS.values() for name in part} == names


def test_kernels_of_libraries_are_known_by_pieces_of_their_names() -> None:
    assert part_of("cublasLt::splitKreduce_kernel<32>") == part_of("void gemv2T_kernel_val<int>") == "products"
    assert part_of("fused_recurrent_gated_delta_rule_fwd_kernel") == "delta rule"
    assert part_of("Memcpy DtoD (Device -> Device)") == OTHER


def test_a_profile_is_read_back_and_a_damaged_one_is_one_line(tmp_path: Path) -> None:
    record = decode_record()
    folder = write_run(tmp_path, [record], profiles=[cell_profile(record)])
    path = folder / "profile.json"
    assert read_profiles(path) == (cell_profile(record),) and read_profiles(tmp_path / "none") == ()
    (row,) = json.loads(path.read_text())
    lost = {name: value for name, value in row.items() if name != "batch"}
    for text, told in (
        ("[1, ", "damaged"),
        ("{}", "expected a list"),
        (json.dumps([lost]), "field 'batch' is missing"),
        (json.dumps([{**row, "time_us": -1}]), "time_us: expected a number above 0"),
    ):
        path.write_text(text)
        with pytest.raises(SpeclaError, match=rf"profile\.json.*{told}.*restore the file, or delete it") as caught:
            read_profiles(path)
        assert "\n" not in str(caught.value)


def test_a_cell_that_is_profiled_again_replaces_its_profile(tmp_path: Path) -> None:
    record, other = decode_record(), decode_record(fingerprint="other")
    first, second = cell_profile(record), cell_profile(other)
    slower = replace(first, time_us=2 * first.time_us)
    write_run(tmp_path, [record, other], profiles=[first, second])
    folder = write_run(tmp_path, [], profiles=[slower])
    assert read_profiles(folder / "profile.json") == (second, slower)
