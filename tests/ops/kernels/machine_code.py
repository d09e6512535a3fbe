"""What ptxas made of a kernel, read for two faults of ptxas 12.8 that no other tool finds.

It gave a kernel an address of a uniform register that nothing had written: wrong results on one launch, an illegal
address on another, and nothing that memcheck or racecheck saw. And it took a sum of tensor cores for zero where a
kernel turned its sign.
"""

import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import triton

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<name>[A-Z0-9_.a-z]+)\s*(?P<operands>[^;]*);")
INSTRUCTION_BYTES = 16
UNIFORM = re.compile(r"\bUR(?P<number>\d+)\b(?P<pair>\.64)?")
PREDICATE = re.compile(r"!?U?P[\dTR]")
DESCRIPTOR = re.compile(r"(?P<matrix>g?)desc\[UR(?P<first>\d+)\]")
ZERO = re.compile(r"-?\|?U?RZ\|?(\.reuse)?")
WRITERS = ("U", "S2UR", "R2UR", "CS2UR", "VOTEU", "REDUX", "ELECT")
"""How the names begin of what writes uniform registers."""
PREDICATES_ALONE = ("UISETP", "UFSETP", "UPSETP", "UPLOP3", "UR2UP", "R2UP")
"""How the names begin of what writes predicates and no register."""


def stack_bytes(cubin: bytes) -> int:
    """Bytes of a thread's stack, which lie in memory."""
    usage = _run("cuobjdump", "-res-usage", cubin)
    stack = re.search(r"STACK:(\d+)", usage)
    assert stack is not None, usage
    return int(stack[1])


def disassembled(cubins: Sequence[bytes]) -> list[str]:
    """The instructions of each kernel, one a line, in the order of their addresses.

    All in one call: the tool takes a third of a second to begin, and next to nothing for a kernel.
    """
    codes = [_code(cubin) for cubin in cubins]
    lines = [line[0] for line in INSTRUCTION.finditer(_run("nvdisasm", "--binary=SM90a", b"".join(codes)))]
    ends = [end // INSTRUCTION_BYTES for end in accumulate(map(len, codes))]
    assert ends[-1] == len(lines)
    return ["\n".join(lines[start:end]) for start, end in pairwise([0, *ends])]


def _code(cubin: bytes) -> bytes:
    """What the one kernel of an ELF file with 64 bits consists of: its section `.text.NAME`."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<I20xQQ", cubin, table + place * size) for place in range(count)]
    start = sections[names][1]
    (code,) = (cubin[at : at + length] for name, at, length in sections if cubin.startswith(b".text.", start + name))
    return code


def _run(tool: str, option: str, content: bytes) -> str:
    """What Triton's own copy of a tool prints of a file."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(content)
        file.flush()
        command = [Path(triton.__file__).parent / "backends/nvidia/bin" / tool, option, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def unwritten(instructions: str) -> list[str]:
    """Instructions that read a uniform register before any instruction at a lower address has written it."""
    written: set[int] = set()
    found = []
    for instruction in INSTRUCTION.finditer(instructions):
        name, operands = instruction["name"], [x.strip() for x in instruction["operands"].split(",")]
        results = _results(name, operands)
        reads = _reads(name, [x for i, x in enumerate(operands) if i not in results])
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
    if not name.startswith(WRITERS) or name.startswith(PREDICATES_ALONE):
        return []
    for place, operand in enumerate(operands[:2]):
        if UNIFORM.fullmatch(operand):
            return [place]
        if not PREDICATE.fullmatch(operand):
            break
    return []


def _width(name: str) -> int:
    if ".128" in name:
        return 4
    return 2 if ".64" in name or ".WIDE" in name or name.startswith("CS2UR") else 1


def _reads(name: str, operands: list[str]) -> set[int]:
    """Uniform registers among the operands that are no results.

    Descriptors take two; those of a matrix product four, of which the first two are of an operand that may lie in
    registers.
    """
    reads = set()
    for operand in operands:
        for found in UNIFORM.finditer(operand):
            reads |= {int(found["number"]), int(found["number"]) + bool(found["pair"])}
    for operand in _pairs(name, operands):
        if register := UNIFORM.fullmatch(operand):
            reads.add(int(register["number"]) + 1)
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


def _pairs(name: str, operands: list[str]) -> list[str]:
    """Which operands are numbers of 64 bits: all of a sum, and what a wide product is added to."""
    if name.startswith("UIADD3.64"):
        return operands
    if name.startswith(("UIMAD.WIDE", "IMAD.WIDE")):
        return [x for x in operands if not PREDICATE.fullmatch(x)][-1:]
    return []
