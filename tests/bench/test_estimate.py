"""What a plan says it will take, beforehand: what must make it more makes it more."""

from specla.bench.estimate import Estimate, estimate
from specla.bench.plan import plan


def estimated(words: str) -> Estimate:
    """Of the one cell that is not AR."""
    (cell,) = (cell for cell in plan("bench e2e", words.split()).cells if cell.method.verify != "ar")
    return estimate(cell, "cpu", "float32")


def test_every_repeat_takes_its_time() -> None:
    words = "topology=chain topology.length=4 engine.verify=chain drafter=ngram measure.repeats="
    few, many = estimated(f"{words}5"), estimated(f"{words}50")
    assert many.seconds > 3 * few.seconds > 0 and many.memory_bytes == few.memory_bytes


def test_a_dense_state_a_node_takes_its_memory() -> None:
    words = "topology=kary topology.branching=2 topology.nodes=16 engine.verify=parent_pointer drafter=ngram"
    snapshots = estimated(f"{words} engine.recover=snapshot workload.batch=8 workload.prompts=8")
    factors = estimated(
        f"{words.replace('parent_pointer', 'tree')} engine.recover=factors workload.batch=8 workload.prompts=8"
    )
    assert snapshots.memory_bytes > factors.memory_bytes
