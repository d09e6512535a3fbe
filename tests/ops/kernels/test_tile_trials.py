"""The trials of the tuning tool run its kernels, and a wrong one is found out."""

import pytest
import torch

from specla.bench import tile_trials
from specla.bench.tile_trials import KERNELS, Trial, fault, faults
from specla.ops.kernels import walk
from specla.ops.types import HeadShape, VerifyOutput

SHAPE = HeadShape(1, 2, 32, 32)
TREE, WALK = (16, 32, 4, 3, None, 4, 16), (16, 1)


def trial_of(kernel: str, nodes: int = 8) -> Trial:
    return Trial(kernel, 1 if kernel == "step" else nodes, TREE if kernel == "tree" else WALK)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_trial_runs_its_kernel(kernel: str, device: torch.device) -> None:
    assert fault(trial_of(kernel), SHAPE, device.type) is None


def test_one_node_is_a_chain(device: torch.device) -> None:
    assert fault(trial_of("hybrid", 1), SHAPE, device.type) is None


def test_a_wrong_result_is_found_out(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    right = walk.verify_chain

    def wrong(*given: object, **named: object) -> VerifyOutput:
        found = right(*given, **named)  # type: ignore[arg-type]
        found.out[0, 3, 0, 5] += 0.5
        return found

    monkeypatch.setattr(walk, "verify_chain", wrong)
    why = fault(trial_of("chain"), SHAPE, device.type)
    assert why is not None and why.startswith("relative error ") and why.endswith("where 1e-05 is allowed")


def test_not_a_number_is_wrong(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    right = walk.verify_chain

    def wrong(*given: object, **named: object) -> VerifyOutput:
        found = right(*given, **named)  # type: ignore[arg-type]
        found.out[0, 3, 0, 5] = torch.nan
        return found

    monkeypatch.setattr(walk, "verify_chain", wrong)
    assert fault(trial_of("chain"), SHAPE, device.type) == "relative error nan, where 1e-05 is allowed"


def test_what_does_not_compile_is_told_in_one_line(device: torch.device) -> None:
    why = fault(Trial("chain", 8, (24, 1)), SHAPE, device.type)
    assert why is not None and "\n" not in why


@pytest.mark.slow
def test_a_process_that_dies_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that fails is tried again by itself: here all but the one that always dies are found right."""
    monkeypatch.setattr(tile_trials, "fault", _fault)
    found = [Trial("chain", 8, (values, 1)) for values in (2, 4, 8)]
    assert faults(found, SHAPE, 1) == {found[1]: "its process died"}


def _fault(trial: Trial, shape: HeadShape, device_name: str) -> str | None:
    if trial.tiles[0] == 4:
        import os

        os._exit(1)
    return None
