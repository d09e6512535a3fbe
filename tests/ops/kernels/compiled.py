"""Compiles every kernel for an H200, in a process of its own: the interpreter forgives what the compiler does not.

Printed as JSON lines, {"kernel", "spills": bytes of the stack, "shared": bytes, "faults": instructions that ptxas
should not have made}, or with "error".
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from specla.ops.kernels import (
    commit,
    held,
    parent_pointer,
    pick,
    replay,
    ring,
    tree,
    tree_read,
    tree_solve,
    walk,
    walk_step,
    window,
)
from specla.ops.kernels.launch import block_of
from tests.ops.kernels.machine_code import cuobjdump, disassembled, unwritten, zero_products

HEADS = {"H": 8, "HV": 8, "K": 256, "V": 256}
WINDOW = {"C": 6144, "W": 4, "BC": window.CHANNELS, "OVERLAP": True}
FLAGS = ("KNOWN", "INDEXED", "COUNTED", "FOLDS", "ALL_FOLD")
PENDING = {
    "plain": dict.fromkeys(FLAGS, False),
    "deferred": dict.fromkeys(FLAGS, True) | {"FOLDS": False},
    "lazy": dict.fromkeys(FLAGS, True) | {"INDEXED": False, "ALL_FOLD": False},
    "masked": dict.fromkeys(FLAGS, False) | {"KNOWN": True},
}
PENDENCIES: dict[str, held.Pendency] = {"plain": "none", "deferred": "folded", "lazy": "beside", "masked": "beside"}
"""How known factors come: not at all, in a bank that every row folds, in a ring that some fold, under a mask."""
HALF = ("q", "k", "v", "known_k", "ring_k", "window", "raw", "mixing", "pending")
LONG = ("depth", "path", "along", "length", "known_nodes", "parents", "used", "new_used", "count", "new_count", "taps")
INT = ("nodes", "keeps", "lengths", "starts")
BYTE = ("ancestor", "fold", "new_fold")


def pointer(name: str, counted: bool) -> str:
    """What a pointer of a kernel points to, as the launching functions pass it."""
    kinds = {"*bf16": HALF, "*i64": LONG, "*i32": INT, "*u8": BYTE}
    if name in ("known_valid", "known_mask"):
        return "*i64" if counted else "*u8"
    if name.endswith("decay"):
        return "*fp64"
    return next((kind for kind, names in kinds.items() if name in names), "*fp32")


def compiled(kernel: Any, constants: Mapping[str, Any], warps: int, stages: int = 3, limit: int | None = None) -> Any:
    """One kernel with these constants for sm_90; strides are multiples of 16 as in every model."""
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else "i32" for name in names}
    counted = bool(constants.get("COUNTED"))
    signature |= {name: pointer(name[2:], counted) for name in names if name.startswith("p_")}
    plain = [
        i for i, name in enumerate(names) if signature[name] != "constexpr" and name not in kernel.do_not_specialize
    ]
    attributes = {(i,): [["tt.divisibility", 16]] for i in plain}
    options = {"num_warps": warps, "num_stages": stages, "launch_pdl": "OVERLAP" in constants, "maxnreg": limit}
    source = ASTSource(kernel, signature, dict(constants), attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def verifications() -> Iterator[tuple[str, Any]]:
    """The tree and the walks, in every tiling that is in use and every way that factors are pending."""
    for kind, flags in PENDING.items():
        sizes = {"KNOWN": False, "INDEXED": False} | {k: v for k, v in flags.items() if k != "ALL_FOLD"}
        for nodes in (16, 32, 64):
            for heads in (8, 64, 256, 1024):
                tiles = tree.tiles_for(heads, nodes, PENDENCIES[kind])
                common = HEADS | {"BT": nodes, "BR": 16, "OVERLAP": True, "EXACT": True}
                read = common | flags | {"BK": tiles.keys, "BV": tiles.values}
                yield f"read {kind} {nodes} {heads}", (
                    tree_read.read_kernel, read, tiles.warps, tiles.stages, tiles.registers,
                )  # fmt: skip
            solve = common | sizes | {"BC": nodes, "BK": 64, "FLAT": nodes < 64, "DEPTH": 5, "SUMMED": False}
            solve.pop("V")
            solve.pop("EXACT")
            yield f"solve {kind} {nodes}", (tree_solve.solve_kernel, solve, 4)
        for tables in (False, True):
            tiles_of_walk = walk.tiles_for(64, 4, tables)
            constants = HEADS | flags | {"BK": 256, "BV": tiles_of_walk.values, "BR": 16, "OVERLAP": True}
            constants |= {"TABLES": tables, "KEEPS": tables}
            yield f"walk {kind} {tables}", (walk_step.walk_kernel, constants, tiles_of_walk.warps)
    constants = HEADS | {"BK": 256, "BV": parent_pointer.TILES.values, "OVERLAP": True}
    yield "parents", (parent_pointer._parent_pointer_kernel, constants, parent_pointer.TILES.warps)


def flat_solves() -> Iterator[tuple[str, Any]]:
    """Triangles by level, as split among programs as they ever are, at every head size."""
    for key_size in (16, 32, 64, 96, 128, 192, 256):
        for nodes, summed in ((16, False), (64, False), (64, True)):
            columns = tree.columns_of(tree.tiles_for(8, nodes), nodes, key_size)
            constants = {"H": 1, "HV": 1, "K": key_size, "BT": nodes, "BC": columns, "BR": 16}
            constants |= {"BK": block_of(key_size), "FLAT": True, "DEPTH": 6, "SUMMED": summed, "OVERLAP": True}
            constants |= dict.fromkeys(("KNOWN", "INDEXED", "COUNTED", "FOLDS"), False)
            yield f"flat {nodes} {key_size} {summed}", (tree_solve.solve_kernel, constants, 4)


def commits() -> Iterator[tuple[str, Any]]:
    """What follows a verification."""
    for heads in (8, 64, 256):
        tiles = commit.tiles_for(heads)
        constants = HEADS | WINDOW | {"BK": tiles.keys, "BV": tiles.values, "BL": 16, "EXACT": True}
        yield f"factors {heads}", (commit._factors_kernel, constants, tiles.warps)
    yield "replay", (replay._replay_kernel, HEADS | WINDOW | {"BK": 256, "BV": 8}, 1)
    yield "pick", (pick._pick_kernel, WINDOW | {"SIZE": 8 * 65536, "BLOCK": pick.PICK_BLOCK}, 4)
    sizes = {"KEYS": 2048, "VALUES": 2048, "HEADS": 8, "BX": ring.SIZE, "BH": 8}
    yield "ring", (ring._append_kernel, WINDOW | sizes, 4)
    yield "window", (window._move_kernel, WINDOW, 4)


def spills(found: Any) -> int:
    """Bytes of a thread's stack, which lie in memory."""
    told = cuobjdump(found.asm["cubin"], "-res-usage")
    stack = re.search(r"STACK:(\d+)", told)
    assert stack is not None, told
    return int(stack[1])


def main() -> None:
    """Compile all and tell."""
    for name, (kernel, constants, *rest) in (*verifications(), *flat_solves(), *commits()):
        try:
            found = compiled(kernel, constants, *rest)
            told = {"kernel": name, "shared": found.metadata.shared, "spills": spills(found)}
            instructions = disassembled(found.asm["cubin"])
            told |= {"faults": unwritten(instructions) + zero_products(instructions)}
        except Exception as error:
            told = {"kernel": name, "error": str(error)[-400:]}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
