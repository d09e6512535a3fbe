"""Every fuzzing target on its seeds and on some hundred inputs near them: a refusal is one line, and nothing else."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.seeds import seeds
from tests.fuzz.targets import SEPARATOR, TARGETS, hold

EXAMPLES = {"overrides": 40, "topology": 300, "records": 200, "checkpoint": 60, "checkpoint_index": 150, "prompts": 60}
"""What each does in about a second."""
PIECES = (SEPARATOR, b"[", b"{", b'"', b"\n", b",", b"=", b"null", b"-1", b"1e999")
SEEDED = [(name, number) for name in TARGETS for number in range(len(seeds(name)))]


@pytest.mark.parametrize(("name", "number"), SEEDED)
def test_seeds(name: str, number: int) -> None:
    hold(TARGETS[name], seeds(name)[number])


def near(name: str) -> st.SearchStrategy[bytes]:
    """A seed with a few of its bytes cut out, replaced or doubled, or any bytes at all."""
    piece = st.one_of(
        st.binary(max_size=8),
        st.sampled_from([SEPARATOR, b"[", b"{", b'"', b"\n", b",", b"=", b"null", b"-1", b"1e999"]),
    )
    edits = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 6), piece), max_size=4)
    return st.builds(_edited, st.sampled_from(seeds(name)), edits) | st.binary(max_size=64)


def _edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for place, cut, piece in edits:
        at = place % (len(data) + 1)
        data = data[:at] + piece + data[at + cut :]
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_near_the_seeds(name: str) -> None:
    """The same ones every time: a long search is for `make fuzz`."""

    @settings(
        max_examples=EXAMPLES[name],
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(near(name))
    def look(data: bytes) -> None:
        hold(TARGETS[name], data)

    look()
