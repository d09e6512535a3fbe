"""What ptxas made of a kernel, read for two faults of ptxas 12.8 that no other tool finds.

It gave a kernel an address of a uniform register that nothing had written: wrong results on one launch, an illegal
address on another, and nothing that memcheck or racecheck saw. And it took a sum of tensor cores for zero where a
kernel turned its sign.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import triton

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z0-9_.a-z]+)\s*(?P<operands>[^;]*);")
UNIFORM = re.compile(r"\bUR(\d+)\b")
DESCRIPTOR = re.compile(r"(?P<matrix>g?)desc\[UR(?P<first>\d+)\]")
ZERO = re.compile(r"-?\|?RZ\|?(\.reuse)?")
WRITERS = ("U", "S2UR", "R2UR", "CS2UR", "VOTEU")
"""How the names begin of what writes uniform registers."""


def cuobjdump(cubin: bytes, option: str) -> str:
    """What Triton's own copy of the tool prints."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True).stdout


def disassembled(cubin: bytes) -> str:
    """The instructions, one a line, in the order of their addresses."""
    return cuobjdump(cubin, "-sass")


def unwritten(instructions: str) -> list[str]:
    """Instructions that read a uniform register before any instruction at a lower address has written it."""
    written: set[int] = set()
    found = []
    for instruction in INSTRUCTION.finditer(instructions):
        name, operands = instruction["name"], [x.strip() for x in instruction["operands"].split(",")]
        results = _results(name, operands)
        reads = _reads([x for i, x in enumerate(operands) if i not in results])
        if missing := reads - written:
            found.append(f"{name} {', '.join(operands)}")
            written |= missing
        for place in results:
            first = int(operands[place][2:])
            written |= set(range(first, first + _width(name)))
    return found


def zero_products(instructions: str) -> list[str]:
    """Floating-point products with the register that is always zero: a compiler that knew a factor would fold them."""
    found = []
    for instruction in INSTRUCTION.finditer(instructions):
        name, operands = instruction["name"], [x.strip() for x in instruction["operands"].split(",")]
        if name.startswith(("FFMA", "FMUL")) and any(ZERO.fullmatch(x) for x in operands[1:3]):
            found.append(f"{name} {', '.join(operands)}")
    return found


def _results(name: str, operands: list[str]) -> list[int]:
    """Which operand is a uniform register that is written: the first, or the one behind a predicate."""
    if not name.startswith(WRITERS):
        return []
    for place, operand in enumerate(operands):
        if UNIFORM.fullmatch(operand):
            return [place]
        if not operand.startswith("UP"):
            break
    return []


def _width(name: str) -> int:
    if ".128" in name:
        return 4
    return 2 if ".64" in name or ".WIDE" in name or name.startswith("CS2UR") else 1


def _reads(operands: list[str]) -> set[int]:
    """Uniform registers among operands.

    Descriptors take two; those of a matrix product four, of which the first two are of an operand that may lie in
    registers.
    """
    reads = {int(number) for operand in operands for number in UNIFORM.findall(operand)}
    in_registers = len(operands) > 1 and re.match(r"R\d+", operands[1]) is not None
    for operand in operands:
        if descriptor := DESCRIPTOR.search(operand):
            first = int(descriptor["first"])
            if descriptor["matrix"]:
                reads -= {first} if in_registers else set()
                reads |= set(range(first + 2 * in_registers, first + 4))
            else:
                reads.add(first + 1)
    return reads
