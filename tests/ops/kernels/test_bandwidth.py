"""The reading kernel reads every element once, the last block's rest too."""

import os
import subprocess
import sys

import pytest
import torch

PROGRAM = """
import sys, torch
from specla.ops.kernels.bandwidth import empty_sums, partial_sums
for count in (5, 32_768, 32_769, 200_000):
    x = torch.arange(count, dtype=torch.float32, device=sys.argv[1]) % 7
    sums = empty_sums(x).fill_(torch.nan)
    partial_sums(x, sums)
    assert sums.shape[0] == -(-count // 32_768) and sums.double().sum() == x.double().sum(), count
"""


def test_it_adds_everything_up() -> None:
    pytest.importorskip("triton")
    subprocess.run([sys.executable, "-c", PROGRAM, "cpu"], env={**os.environ, "TRITON_INTERPRET": "1"}, check=True)


@pytest.mark.gpu
def test_it_adds_everything_up_on_a_gpu() -> None:
    assert torch.cuda.is_available()
    subprocess.run([sys.executable, "-c", PROGRAM, "cuda"], check=True)
