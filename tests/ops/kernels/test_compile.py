"""Every kernel compiles for the device that it is tuned on, where there is none as well."""

import json
import os
import subprocess
import sys

import pytest

from tests.ops.kernels.machine_code import unwritten, zero_products

SPILLED_BYTES = {64: 160}
"""By the nodes of a kernel's name: the triangle of 64 nodes, and a limit of registers that buys a third program on a
multiprocessor, cost a few spilled registers; all others have none."""


@pytest.mark.slow
def test_every_kernel_compiles_for_an_h200() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.ops.kernels.compiled"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) > 40
    assert [one for one in found if "error" in one] == []
    for one in found:
        nodes = max((int(word) for word in one["kernel"].split() if word.isdigit() and int(word) == 64), default=0)
        assert one["spills"] <= SPILLED_BYTES.get(nodes, 0), one
        assert one["shared"] <= 227 << 10, one
        assert one["faults"] == [], one


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


def test_products_with_zero_are_found() -> None:
    """A line that ptxas 12.8 made of `b_v - read * grown`, and lines that are no fault."""
    assert zero_products("/*4920*/ FFMA R5, -RZ, R6, R2 ;") == ["FFMA R5, -RZ, R6, R2"]
    assert zero_products("/*4920*/ FFMA R5, R6.reuse, RZ, R2 ; /*4930*/ @!P1 FMUL R5, RZ.reuse, R2 ;") != []
    assert zero_products("/*4920*/ FFMA R5, R4, R6, RZ ; /*4930*/ FMUL R7, R2, 1.5 ; /*4940*/ FADD R1, RZ, -R2 ;") == []
