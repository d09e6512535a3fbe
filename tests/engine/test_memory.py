"""What decoding on a device holds: more of everything takes more, and what does not fit says what would."""

import re

import pytest

from specla.engine.memory import Demand, needed_bytes, require
from specla.errors import SpeclaError
from specla.models.config import GatedDeltaNetConfig
from specla.models.cost import ModelCost


@pytest.fixture
def config() -> GatedDeltaNetConfig:
    """The published 1.3B shape."""
    return GatedDeltaNetConfig(
        vocab_size=32000,
        hidden_size=2048,
        num_hidden_layers=24,
        num_heads=8,
        num_v_heads=8,
        head_dim=256,
        expand_v=1.0,
        intermediate_size=5632,
    )


def test_a_row_takes_its_state_and_little_more(config: GatedDeltaNetConfig) -> None:
    cost = ModelCost.of(config, "bfloat16")
    rows = [needed_bytes(config, "bfloat16", Demand(batch, (1,), 1)) for batch in (1, 2)]
    assert 1.0 < (rows[1] - rows[0]) / (cost.state_bytes + cost.window_bytes) < 1.2


def test_a_draft_token_takes_no_state_but_with_snapshots(config: GatedDeltaNetConfig) -> None:
    state = ModelCost.of(config, "bfloat16").state_bytes
    few, many = (needed_bytes(config, "bfloat16", Demand(1, (nodes,), nodes)) for nodes in (4, 5))
    assert many - few < 0.1 * state
    few, many = (needed_bytes(config, "bfloat16", Demand(1, (nodes,), snapshots=True)) for nodes in (4, 5))
    assert many - few > state


def test_what_does_not_fit_says_what_would(config: GatedDeltaNetConfig) -> None:
    demand, free = Demand(256, (64,), 64), 40 << 30
    with pytest.raises(
        SpeclaError, match=r"workload.batch=256 with 64 nodes takes .* GiB .* 40.0 GiB are free"
    ) as told:
        require(config, "bfloat16", demand, free)
    found = re.search(r"workload.batch=(\d+) would fit", str(told.value))
    assert found is not None
    fits = int(found[1])
    require(config, "bfloat16", Demand(fits, (64,), 64), free)
    with pytest.raises(SpeclaError):
        require(config, "bfloat16", Demand(fits + 1, (64,), 64), free)
    with pytest.raises(SpeclaError, match="use a smaller tree or model"):
        require(config, "bfloat16", demand, 1 << 29)
