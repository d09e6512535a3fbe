"""Compiles every kernel for an H200, in a process of its own: the interpreter forgives what the compiler does not.

The functions that launch kernels run as they do on a GPU, on tensors that have no memory, and what they launch is
compiled: constants, warps, types of pointers and divisible strides are those of a decode. `launches.py` has the calls.
Printed as JSON lines, with `launches`, such a call, `kernel` and `constants`, and either `error` or `stack` (bytes a
thread), `shared` (bytes) and `faults` (instructions that ptxas should not have made).

    python -m tests.ops.kernels.compiled FAMILY      one family of launches
    python -m tests.ops.kernels.compiled --names     of all families `kernel` alone, nothing compiled
"""

import json
import sys
from collections.abc import Callable, Collection
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

from tests.ops.kernels.launches import FAMILIES
from tests.ops.kernels.machine_code import disassembled, stack_bytes, unwritten, zero_products

Made = tuple[dict[str, Any], Any]
"""Of a kernel, what its line begins with, and what Triton compiled."""


class H200:
    """What Triton asks of a driver before it compiles."""

    @staticmethod
    def get_current_target() -> GPUTarget:
        """An H200, whatever is here."""
        return GPUTarget("cuda", 90, 32)

    @staticmethod
    def get_current_device() -> int:
        """One for all."""
        return 0

    @staticmethod
    def get_current_stream(_device: int) -> int:
        """One for all."""
        return 0


def instead_of_launching(compiles: Callable[..., Any], launches: str, made: dict[str, Made]) -> Callable[..., None]:
    """What takes the place of `JITFunction.run`: compile, and keep where the kernel is a new one."""

    def run(kernel: Any, *given: Any, grid: object, warmup: bool, **named: Any) -> None:
        constants = {name: value for name, value in named.items() if name in kernel.arg_names}
        line = {"launches": launches, "kernel": kernel.__name__, "constants": constants}
        try:
            found = compiles(kernel, *given, grid=grid, warmup=True, **named)
            made.setdefault(found.hash, (line, found))
        except Exception as error:
            print(json.dumps(line | {"error": str(error)[-400:]}))

    return run


def names_alone(kernel: Any, *_given: Any, grid: object, warmup: bool, **_named: Any) -> None:
    """What takes the place of `JITFunction.run` where nothing is compiled."""
    print(json.dumps({"kernel": kernel.__name__}))


def tell(made: Collection[Made]) -> None:
    """Print what there is to know of compiled kernels."""
    cubins = [found.asm["cubin"] for _, found in made]
    for (line, found), cubin, code in zip(made, cubins, disassembled(cubins), strict=True):
        faults = unwritten(code) + zero_products(code)
        print(json.dumps(line | {"stack": stack_bytes(cubin), "shared": found.metadata.shared, "faults": faults}))


def main(asked: str) -> None:
    """Compile a family and tell, or tell the names of all kernels."""
    driver.set_active(H200())
    # The launching functions ask this and nothing else of a device.
    torch.Tensor.is_cuda = True
    compiles, made = JITFunction.run, dict[str, Made]()
    with torch.device("meta"):
        for family in FAMILIES if asked == "--names" else [asked]:
            for name, launch in FAMILIES[family]():
                JITFunction.run = names_alone if asked == "--names" else instead_of_launching(compiles, name, made)
                launch()
    if made:
        tell(made.values())


if __name__ == "__main__":
    main(sys.argv[1])
