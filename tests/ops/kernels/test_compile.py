"""Every kernel compiles for the device that it is tuned on, where there is none as well."""

import json
import os
import subprocess
import sys

import pytest

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
