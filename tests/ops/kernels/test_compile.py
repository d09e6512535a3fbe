"""Every kernel compiles for the device that it is tuned on, where there is none as well."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specla.ops import kernels
from tests.ops.kernels.launches import FAMILIES
from tests.ops.kernels.machine_code import unwritten, zero_products

STACK_BYTES: tuple[tuple[str, dict[str, object], int], ...] = (
    # Where write strengths exceed 1, float16 halves are scaled as well.
    ("solve_kernel", {"BT": 64, "BC": 16, "REFLECTS": True}, 24),
    ("read_kernel", {"BT": 64, "EXACT": False, "REFLECTS": True}, 440),
    ("read_kernel", {"BT": 64, "REFLECTS": True}, 88),
    ("_factors_kernel", {"BL": 128, "REFLECTS": True}, 56),
    # The second launch of a tree beyond 64 nodes holds the products with 64 or 128 known keys as well.
    ("solve_kernel", {"BT": 64, "BR": 128}, 1480),
    ("solve_kernel", {"BT": 64, "BR": 64}, 288),
    # Halves of a deep triangle, its inverse and a step between them are held at once, beside what tells lost nodes.
    ("solve_kernel", {"BT": 64, "FLAT": False}, 296),
    ("solve_kernel", {"BT": 32, "FLAT": False}, 16),
    # Keys in float32 take halves of their own.
    ("solve_kernel", {"BT": 64, "BC": 16}, 24),
    ("read_kernel", {"BT": 64, "EXACT": False}, 440),
    ("read_kernel", {"BT": 64, "BR": 128}, 168),
    # A limit of registers, or tiles that buy a third program on a multiprocessor; 8 bytes of it keep lost nodes apart.
    ("read_kernel", {"BT": 64}, 128),
    # A program has a vocabulary of 32,000 on chip: 32 scores a thread, their probabilities and keys, in 64 registers.
    ("_nucleus_kernel", {"BV": 32768}, 216),
    # A path of more than 64 nodes, from the root to the end of a chain of 128.
    ("_factors_kernel", {"BL": 128}, 904),
)
"""Kernel, some of its constants, and the stack that its threads may have; all others have none. The first that fits."""


def stack_limit(kernel: str, constants: dict[str, object]) -> int:
    """Bytes a thread."""
    fits = (limit for name, some, limit in STACK_BYTES if name == kernel and some.items() <= constants.items())
    return next(fits, 0)


def told(asked: str) -> list[dict[str, Any]]:
    """What `compiled` tells of a family, or the names of all kernels; without the interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.ops.kernels.compiled", asked]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_compiles_for_an_h200(family: str) -> None:
    found = told(family)
    assert found and [one for one in found if "error" in one] == []
    for one in found:
        assert one["stack"] <= stack_limit(one["kernel"], one["constants"]), one
        assert one["shared"] <= 227 << 10, one
        assert one["faults"] == [], one


@pytest.mark.slow
def test_the_families_launch_every_kernel() -> None:
    assert {one["kernel"] for one in told("--names")} == launched_kernels()


def launched_kernels() -> set[str]:
    """The names of what the source launches, `kernel[grid](...)`."""
    launches = re.compile(r"\b(\w+_kernel)\[")
    folder = Path(kernels.__path__[0])
    return {name for file in folder.glob("*.py") for name in launches.findall(file.read_text(encoding="utf-8"))}


def test_reads_of_what_nothing_wrote_are_found() -> None:
    """The lines that ptxas 12.8 made of a split triangle, and the same with the register that was meant."""
    lines = """
        /*0e30*/                   UMOV UR7, 0x400 ;
        /*1740*/                   USHF.R.U32.HI UR28, URZ, 0x4, UR7 ;
        /*50a0*/                   UMOV UR10, UR28 ;
        /*50b0*/                   UMOV UR11, 0xc0000010 ;
        /*50d0*/                   HGMMA.64x16x16.F32 R56, R100, gdesc[UR8].tnspB, RZ, !UPT ;
        /*50e0*/                   UIADD3 UR4, UP0, UR26, 0x20, URZ ;
    """
    assert unwritten(lines) == ["UIADD3 UR4, UP0, UR26, 0x20, URZ"]
    assert unwritten(lines.replace("UR26", "UR28")) == []
    assert unwritten(lines.replace("R100, gdesc[UR8]", "gdesc[UR8]")) != unwritten(lines)
    wide = "/*0010*/ ULDC.64 UR4, c[0x0][0x208] ; /*0020*/ @P0 LDG.E R2, desc[UR4][R2.64] ;"
    assert unwritten(wide) == []
    assert unwritten(wide.replace("ULDC.64", "ULDC")) == ["LDG.E R2, desc[UR4][R2.64]"]


def after(writes: str, reads: str) -> list[str]:
    """What is found where one instruction follows another."""
    return unwritten(f"/*0010*/ {writes} ; /*0020*/ {reads} ;")


@pytest.mark.parametrize("reads", ["UISETP.GT.AND UP0, UPT, UR8, 0x1, UPT", "UR2UP UPR, UR8"])
def test_what_writes_predicates_alone_reads_its_registers(reads: str) -> None:
    assert after("UMOV UR9, 0x1", reads) == [reads]
    assert after("UMOV UR8, 0x1", reads) == []


@pytest.mark.parametrize("writes", ["R2UR P0, UR5, R0", "REDUX.SUM UR5, R0", "VOTEU.ANY UR5, UPT, PT"])
def test_results_are_found_wherever_they_stand(writes: str) -> None:
    assert after(writes, "UMOV UR6, UR5") == []
    assert after(writes, "UMOV UR6, UR7") == ["UMOV UR6, UR7"]


@pytest.mark.parametrize(
    ("reads", "pairs"),
    [
        ("LDG.E R2, [UR6.64]", 1),
        ("UIADD3.64 UR8, UR6, UR20", 2),
        ("UIMAD.WIDE UR8, UR2, 0x4, UR6", 1),
        ("UIMAD.WIDE.U32.X UR8, UR2, 0x4, UR6, UP0", 1),
    ],
)
def test_both_halves_of_a_number_of_64_bits_are_read(reads: str, pairs: int) -> None:
    both = "UMOV UR2, 0x1 ; /*0008*/ ULDC.64 UR20, c[0x0][0x208] ; /*0010*/ ULDC.64 UR6, c[0x0][0x210]"
    assert after(both, reads) == []
    assert after(both.replace("ULDC.64 UR6", "ULDC UR6"), reads) == [reads]
    assert (after(both.replace("ULDC.64 UR20", "ULDC UR20"), reads) == [reads]) == (pairs == 2)
    assert after(both, "UIMAD.WIDE UR8, UR20, UR2, URZ") == []


def test_products_with_zero_are_found() -> None:
    """A line that ptxas 12.8 made of `b_v - read * grown`, and lines that are no fault."""
    assert zero_products("/*4920*/ FFMA R5, -RZ, R6, R2 ;") == ["FFMA R5, -RZ, R6, R2"]
    assert zero_products("/*4920*/ FFMA R5, R6, URZ, R2 ;") == ["FFMA R5, R6, URZ, R2"]
    assert zero_products("/*4920*/ FFMA R5, R6.reuse, RZ, R2 ; /*4930*/ @!P1 FMUL R5, RZ.reuse, R2 ;") != []
    assert zero_products("/*4920*/ FFMA R5, R4, R6, RZ ; /*4930*/ FMUL R7, R2, 1.5 ; /*4940*/ FADD R1, RZ, -R2 ;") == []
