"""How small memory-bound kernels share their work out."""

ENOUGH_PROGRAMS = 512
"""A few for each multiprocessor of a large device: with fewer, part of its bandwidth lies idle."""
MOST_NODES = 8


def nodes_together(programs_per_node: int, nodes: int) -> int:
    """How many nodes a program takes, a power of two.

    Nodes of one program read its weights once; at few nodes and rows it matters more that every one has its own.
    """
    together = MOST_NODES
    while together > 1 and programs_per_node * -(-nodes // together) < ENOUGH_PROGRAMS:
        together //= 2
    return together
