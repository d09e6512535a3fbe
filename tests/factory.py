"""Synthetic records: their true speedup and acceptance are known, so that a test can ask for them back."""

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specla.bench.cells import COMMANDS, Cell
from specla.bench.compose import EXPERIMENT
from specla.bench.identity import ModelInfo
from specla.bench.kernel_times import CellProfile, KernelTime
from specla.bench.record import KernelSample, Lossless, Method, Record, Sample, Split, Status, TopologyInfo
from specla.bench.store import RunFolder
from specla.bench.tally import Counts, Tally

AR_SECONDS_PER_TOKEN = 0.01
STEPS = 200
CATEGORY_FACTOR = {"code": 1.12, "prose": 0.9, "documentation": 0.96, "arithmetic": 1.02}
ENV: dict[str, Any] = {
    "device": "NVIDIA H200",
    "gpu": {"name": "NVIDIA H200", "driver": "570.86", "clocks": {"sm_mhz": 1980}, "throttling": "none"},
    "cpu": {"model": "Xeon", "cores": 16},
    "torch_threads": 16,
    "versions": {"python": "3.11.7", "torch": "2.9.0", "triton": "3.5.0"},
    "commit": "0123456789abcdef",
    "dirty": False,
    "date": "2026-08-01T12:00:00+00:00",
}
MINI = ModelInfo("gdn-mini", "0123456789ab", 8, 256, 4, 4, 64, 64, 768, 8192, 9_483_072)
PUBLISHED = ModelInfo("gdn-1.3b", "ba9876543210", 24, 2048, 8, 8, 256, 256, 5632, 32000, 1_466_343_808)
"""The published model, with trained weights."""


def typed_again(cell: Cell) -> list[str]:
    """The overrides of a command that measures this cell alone (AR comes with it), as a shell splits its line."""
    needs_null = COMMANDS[cell.command][0][1] is not None
    return shlex.split(shlex.join([*([f"{EXPERIMENT}=null"] * needs_null), *cell.overrides]))


def tally(alpha: Sequence[float], steps: int, drafted_per_step: int) -> Tally:
    """The counts that acceptance `alpha`, by depth, is expected to leave after `steps` steps."""
    reached, accepted = [], []
    alive = steps
    for share in alpha:
        reached.append(alive)
        alive = round(alive * share)
        accepted.append(alive)
    return Tally(steps, steps + sum(accepted), steps * drafted_per_step, sum(accepted), tuple(reached), tuple(accepted))


def without(whole: Tally, part: Tally) -> Tally:
    """The counts of the other prompts."""
    by_depth = [
        tuple(a - b for a, b in zip(*pair, strict=True))
        for pair in ((whole.reached, part.reached), (whole.accepted_at, part.accepted_at))
    ]
    left = (getattr(whole, name) - getattr(part, name) for name in ("steps", "emitted", "drafted", "accepted"))
    return Tally(*left, *by_depth)


def decode_samples(
    speedup: float,
    categories: Mapping[str, float],
    repeats: int,
    noise: float,
    seed: int,
    split: Split | None,
    nodes: int = 4,
) -> tuple[Sample, ...]:
    """One sample a repeat and category; `noise` is the relative spread of each time."""
    random = np.random.default_rng(seed)
    samples = []
    for repeat in range(repeats):
        for item, (category, factor) in enumerate(categories.items()):
            tokens, steps = 128, max(60, 128 // nodes)
            spread = 1 + noise * random.standard_normal(2)
            ar = tokens * AR_SECONDS_PER_TOKEN * float(spread[0])
            own = tokens * AR_SECONDS_PER_TOKEN / (speedup * factor) * float(spread[1])
            samples.append(
                Sample(repeat, item, own, tokens, steps, category, (f"{category}-{item}",), item, ar, tokens, split)
            )
    return tuple(samples)


def decode_record(
    method: Method | None = None,
    speedup: float = 1.5,
    alpha: Sequence[float] = (0.8, 0.7, 0.6),
    repeats: int = 5,
    noise: float = 0.0,
    seed: int = 0,
    categories: Iterable[str] = (),
    **changes: Any,
) -> Record:
    """A decode that passed, `speedup` times as fast as AR. Anything of Record can be set by name."""
    method = method or Method("tree", "factors_deferred", "aligned", "chain-d3")
    factors = {name: CATEGORY_FACTOR[name] for name in categories} or {"": 1.0}
    nodes = changes.get("nodes", len(alpha) + 1)
    whole = tally(alpha, STEPS, nodes - 1)
    by_category, rest = {}, whole
    for name in list(factors)[:-1]:
        part = [min(0.99, a * (1 + (factors[name] - 1) / 2)) for a in alpha]
        by_category[name] = tally(part, STEPS // len(factors), nodes - 1)
        rest = without(rest, by_category[name])
    by_category |= {name: rest for name in list(factors)[-1:] if name}
    split = Split(60.0, 260.0, 25.0, 45.0) if not method.is_ar else Split(0.0, 260.0, 10.0, 20.0)
    facts: dict[str, Any] = {
        "command": "bench e2e",
        "batch": 1,
        "nodes": nodes,
        "workload": "heldout",
        "dtype": "float32",
        "device": "NVIDIA H200",
        "model": "gdn-mini",
        "status": Status.PASSED,
        "lossless": Lossless.EXACT,
        "gate_positions": 1000,
        "topology": TopologyInfo(method.topology.split("-")[0], length=len(alpha), nodes=nodes),
        "samples": decode_samples(speedup, factors, repeats, noise, seed, split, nodes),
        "counts": Counts(**vars(whole), by_category=by_category),
        "floor_us": 100.0,
        "started": "2026-08-01T12:00:00+00:00",
        "seconds": 3.0,
    }
    facts.update(changes)
    named = repr((method, facts["workload"], facts.get("alpha_asked"), facts["model"]))
    facts.setdefault("fingerprint", hashlib.sha256(named.encode()).hexdigest())
    return Record(method=method, **facts)


def ar_record(**changes: Any) -> Record:
    """AR itself."""
    return decode_record(Method("ar"), 1.0, (), **{"nodes": 1, **changes})


def kernel_record(
    time_us: float = 50.0, baseline_us: Mapping[str, float] | None = None, repeats: int = 5, **changes: Any
) -> Record:
    """A verify ablation's cell that passed."""
    baselines = baseline_us or {"sequential_replay": 150.0}
    facts: dict[str, Any] = {
        "command": "ablate verify",
        "group": "verify",
        "fingerprint": "kernel",
        "method": Method("hybrid", "factors", "oracle", "kary-b2-n15"),
        "status": Status.PASSED,
        "batch": 1,
        "nodes": 15,
        "workload": "kernel",
        "dtype": "bfloat16",
        "device": "NVIDIA H200",
        "model": "gdn-1.3b",
        "samples": tuple(KernelSample(repeat, time_us, 0, dict(baselines)) for repeat in range(repeats)),
        "error_rms": 1e-3,
        "accepted": 3,
        "floor_us": 10.0,
    }
    return Record(**{**facts, **changes})


def unmeasured(record: Record, status: Status, reason: str = "") -> dict[str, Any]:
    """The changes that turn a decode into a cell that was not measured; for `decode_record(**...)`."""
    return {"status": status, "reason": reason, "samples": (), "counts": None, "lossless": None}


METHODS = {
    "sequential_replay": ("replay_tokens", 0.62),
    "naive_batched": ("replay_cached", 0.78),
    "parent_pointer": ("snapshot", 1.02),
    "chain": ("factors", 1.21),
    "tree": ("factors_deferred", 1.52),
    "hybrid": ("factors_deferred", 1.44),
    "auto": ("factors_lazy", 1.58),
}
TOPOLOGIES = {"chain-d4": (5, 1.0), "kary-b2-n15": (15, 1.08), "confidence-w4-n16": (16, 1.17)}


def bench_run(drafter: str = "aligned", noise: float = 0.03, repeats: int = 5) -> list[Record]:
    """AR and seven methods by three topologies and two workloads, one failed and three that do not apply."""
    records = []
    for place, workload in enumerate(("gsm8k", "human-eval")):
        names = ("arithmetic",) if workload == "gsm8k" else ("code", "documentation", "prose")
        common: dict[str, Any] = {"workload": workload, "categories": names, "noise": noise, "repeats": repeats}
        records.append(ar_record(**common, seed=place, overrides=(f"workload={workload}", "engine.verify=ar")))
        for topology, (nodes, gain) in TOPOLOGIES.items():
            for verify, (recover, base) in METHODS.items():
                method = Method(verify, recover, drafter, topology)
                base = base * gain * (1.0 if place == 0 else 0.82)
                alpha = (
                    [0.82 - 0.05 * place, 0.74, 0.66, 0.6] if "chain" in topology else [0.9 - 0.05 * place, 0.8, 0.72]
                )
                changes: dict[str, Any] = {**common, "nodes": nodes, "seed": len(records), "alpha": alpha}
                changes["overrides"] = (f"engine.verify={verify}", f"topology={topology}", f"workload={workload}")
                changes["split"] = verify
                changes["why"] = "auto: tree, because it was fastest at 15 nodes" if verify == "auto" else ""
                records.append(_with_split(method, base, changes, topology))
    return records


def _with_split(method: Method, speedup: float, changes: dict[str, Any], topology: str) -> Record:
    verify = changes.pop("split")
    if verify == "chain" and "chain" not in topology:
        alpha = changes.pop("alpha")
        probe = decode_record(method, speedup, alpha, **changes)
        gone = unmeasured(probe, Status.NOT_APPLICABLE, "chain verifies chains only")
        return decode_record(method, speedup, alpha, **{**changes, **gone})
    record = decode_record(method, speedup, **changes)
    cost = {"sequential_replay": 900.0, "naive_batched": 700.0, "parent_pointer": 420.0}.get(verify, 280.0)
    commit = {"replay_tokens": 210.0, "replay_cached": 90.0, "snapshot": 60.0}.get(method.recover, 18.0)
    split = Split(70.0, cost, 24.0, commit)
    samples = [Sample(**{**vars(s), "split_us": split}) for s in record.samples if isinstance(s, Sample)]
    return Record(**{**vars(record), "samples": tuple(samples)})


def alpha_sweep(noise: float = 0.02, repeats: int = 5) -> list[Record]:
    """Speedup against the oracle's acceptance: 0.3 to 0.95, three strategies by two topologies."""
    records = [ar_record(workload="heldout", command="ablate acceptance", group="acceptance", noise=noise)]
    for topology, depth, cost in (("chain-d4", 4, 1.55), ("kary-b2-n15", 3, 1.75)):
        for verify, factor in (("parent_pointer", 1.3), ("hybrid", 1.06), ("tree", 1.0)):
            for alpha in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0):
                tau = sum(alpha**d for d in range(depth + 1))
                changes: dict[str, Any] = {"command": "ablate acceptance", "group": "acceptance", "synthetic": True}
                changes |= {"alpha_asked": alpha, "noise": noise, "repeats": repeats, "seed": len(records)}
                changes |= {"drafter_cost": "aligned", "overrides": (f"drafter.alpha={alpha}", "drafter.cost=aligned")}
                changes["nodes"] = 5 if depth == 4 else 15
                method = Method(verify, "factors_deferred", "oracle", topology)
                records.append(decode_record(method, tau / (cost * factor), [alpha] * depth, **changes))
    return records


def cell_profile(record: Record) -> CellProfile:
    """Two kernels of a cell's cycle, the bytes of one of their parts known."""
    method = record.method
    label = " ".join((method.verify, "oracle", method.topology, record.workload))
    kernels = (KernelTime("matrix_kernel", "products", 72, 5.0), KernelTime("walk_kernel", "delta rule", 24, 5.0))
    moved = {"products": 900_000_000, "commit": 1}
    return CellProfile(
        record.fingerprint, label, record.overrides, record.batch, record.nodes, 4, 400.0, kernels, moved
    )


def write_run(
    folder: Path,
    records: Iterable[Record],
    env: Mapping[str, Any] | None = None,
    slug: str = "run",
    profiles: Iterable[CellProfile] = (),
) -> Path:
    """A run folder under `folder` that holds `records`, and profiles of some of them."""
    with RunFolder.open(folder, slug, "0123456789abcdef", "device: cuda\n", ENV if env is None else env) as run:
        for record in records:
            run.append(record)
        for profile in profiles:
            run.write_profile(profile)
    return run.path
