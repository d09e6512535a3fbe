"""Every planted fault fits the code as it is: its text is there once, its tests exist, the table is up to date."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.catalogue import FAULTS, TABLE, table
from tests.mutants.fault import Fault

ROOT = Path(__file__).parents[2]
every_fault = pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])


@cache
def functions_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@every_fault
def test_a_fault_can_be_planted(fault: Fault) -> None:
    text = (ROOT / "specla" / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.old) == 1, f"specla/{fault.file}: say anew what is replaced"
    ast.parse(text.replace(fault.old, fault.new))
    assert fault.old != fault.new


@every_fault
def test_the_tests_of_a_fault_exist(fault: Fault) -> None:
    for test in fault.caught_by:
        file, _, function = test.partition("::")
        assert (ROOT / "tests" / file).is_file(), test
        assert not function or function.partition("[")[0] in functions_of(file), test


def test_there_are_thirty_faults_each_with_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30


def test_the_table_is_up_to_date() -> None:
    wanted = "write it anew: .venv/bin/python -m tests.mutants.run --table"
    assert TABLE.read_text(encoding="utf-8") == table(), wanted
