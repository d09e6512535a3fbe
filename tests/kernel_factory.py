"""Synthetic ablations of one operation, of the magnitudes of a CPU and of a GPU, and sweeps of draft lengths."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from specla.bench.record import Bytes, KernelSample, Method, Record, Status, TopologyInfo
from tests.factory import ar_record, decode_record

RECOVERS = {"sequential_replay": "replay_tokens", "naive_batched": "replay_tokens", "parent_pointer": "snapshot"}
CPU: dict[str, Any] = {"device": "AMD EPYC", "model": "gdn-mini", "dtype": "float32"}
GPU: dict[str, Any] = {"device": "NVIDIA H200", "model": "gdn-1.3b", "dtype": "bfloat16"}
CPU_ENV: dict[str, Any] = {"device": "AMD EPYC", "device_kind": "cpu", "torch_threads": 1}
KEPT = {
    "replay_tokens": 2 * 2048,
    "replay_cached": 6 * 2048,
    "snapshot": 2 << 20,
    "factors": 12 * 1024,
    "factors_deferred": 12 * 1024,
    "factors_lazy": 12 * 1024,
}


def _verify_cpu(name: str, nodes: int, depth: int, batch: int) -> float:
    times = {
        "sequential_replay": 72.0 * nodes * batch**0.7,
        "naive_batched": 120 + 40.0 * nodes * batch**0.8,
        "parent_pointer": 30 + 52.0 * nodes * batch**0.8,
        "chain": 45 + 34.0 * nodes * batch**0.5,
        "tree": (210 + 2.2 * nodes + 0.09 * nodes**2) * batch**0.55,
        "hybrid": (120 + 62.0 * depth) * batch**0.6,
    }
    return times.get(name, min(times["tree"], times["chain"] if depth == nodes - 1 else math.inf))


def _verify_gpu(name: str, nodes: int, depth: int, batch: int) -> float:
    times = {
        "sequential_replay": nodes * (1.5 + 1.65 * batch),
        "naive_batched": nodes * (0.35 + 0.87 * batch),
        "parent_pointer": nodes * (1.0 + 1.07 * batch),
        "chain": 1.0 + nodes * (0.65 + 0.35 * batch),
        "tree": (2.4 + 1.7 * batch) * (1 + 0.6 * (nodes / 32) ** 2),
        "hybrid": (3 + 1.1 * depth) * (1 + 0.45 * batch) + 0.12 * nodes * batch,
    }
    return times.get(name, min(times["tree"], times["chain"] if depth == nodes - 1 else math.inf))


def _commit_cpu(name: str, accepted: int, batch: int) -> float:
    tokens = accepted + 1
    times = {"replay_tokens": 160 + 85 * tokens, "replay_cached": 60 + 38 * tokens, "snapshot": 45.0}
    return times.get(name, 62 + 7.0 * tokens) * batch**0.6


def _commit_gpu(name: str, accepted: int, batch: int) -> float:
    tokens = accepted + 1
    times = {"replay_tokens": 9 + (4.5 + 0.4 * batch) * tokens, "replay_cached": 2 + (0.5 + 0.3 * batch) * tokens}
    return {**times, "snapshot": 2 + 1.05 * batch}.get(name, 2 + (1.2 + 0.04 * tokens) * batch)


def samples(
    time_us: float, baselines: Mapping[str, float], noise: float, repeats: int, seed: int
) -> tuple[KernelSample, ...]:
    """A timing a repeat; what drifts within a repeat drifts for the baselines too."""
    random = np.random.default_rng(seed)
    taken = []
    for repeat in range(repeats):
        drift = math.exp(noise * float(random.standard_normal()))
        own, *others = (drift * np.exp(0.4 * noise * random.standard_normal(1 + len(baselines)))).tolist()
        over = {name: value * part for (name, value), part in zip(baselines.items(), others, strict=True)}
        taken.append(KernelSample(repeat, time_us * own, 0, over))
    return tuple(taken)


def tree_info(name: str, nodes: int) -> tuple[str, TopologyInfo, int]:
    """(the tree's name, its record, its levels) of a chain, or of a k-ary tree named by its branching: `b2`."""
    if name == "chain":
        info = TopologyInfo("chain", nodes - 1, None, nodes, tuple(range(-1, nodes - 1)))
        return f"chain-l{nodes - 1}", info, nodes - 1
    width = int(name[1:])
    depth = math.ceil(math.log(nodes * (width - 1) + 1, width)) - 1
    parents = (-1, *((node - 1) // width for node in range(1, nodes)))
    return f"kary-b{width}-n{nodes}", TopologyInfo("kary", depth, width, nodes, parents), depth


def _record(kind: str, method: Method, times: Mapping[str, float], own: float, **facts: Any) -> Record:
    noise, repeats = facts.pop("noise", 0.03), facts.pop("repeats", 5)
    named = repr((kind, method, facts["batch"], facts.get("accepted"), facts["device"]))
    digest = hashlib.sha256(named.encode()).hexdigest()
    changes: dict[str, Any] = {
        "command": f"ablate {kind}",
        "group": kind,
        "fingerprint": digest,
        "status": Status.PASSED,
        "workload": "none",
        "synthetic": True,
        "samples": samples(own, times, noise, repeats, int(digest[:8], 16)),
        "error_rms": 2e-3 if facts["dtype"] == "bfloat16" else 3e-7,
        "memory": {"draft_token_bytes": KEPT.get(method.recover, 0)},
        "timing": "graph" if facts["device"] == GPU["device"] else "",
        "started": "2026-08-01T12:00:00+00:00",
        **facts,
    }
    asked = (f"engine.verify={method.verify}", f"engine.recover={method.recover}", f"workload.batch={facts['batch']}")
    asked += (f"topology={method.topology}", f"measure.accepted={facts.get('accepted')}")
    return Record(method=method, overrides=asked, **changes)


def verify_run(
    setting: Mapping[str, Any],
    batches: Iterable[int] = (1,),
    chains: Iterable[int] = (4, 8, 16),
    trees: Iterable[int] = (8, 15, 31),
    **changes: Any,
) -> list[Record]:
    """Strategies by trees by batches, as `ablate verify` leaves them."""
    cost: Callable[..., float] = _verify_gpu if setting is GPU else _verify_cpu
    names = ("sequential_replay", "naive_batched", "parent_pointer", "chain", "tree", "hybrid", "auto")
    records = []
    for batch in batches:
        for shape, nodes in [*(("chain", n) for n in chains), *(("b2", n) for n in trees)]:
            topology, info, depth = tree_info(shape, nodes)
            times = {name: cost(name, nodes, depth, batch) for name in names if name != "chain" or shape == "chain"}
            floor = batch * (0.5 + 0.012 * nodes) if setting is GPU else batch * (28 + 0.5 * nodes)
            for name, own in times.items():
                over = {key: times[key] for key in names[:3] if key != name}
                method = Method(name, RECOVERS.get(name, "factors"), "none", topology)
                facts = {"batch": batch, "nodes": nodes, "topology": info, "floor_us": floor, **setting, **changes}
                facts["bytes"] = Bytes(2 << 20, None, (2 << 20) + 16384 * nodes)
                records.append(_record("verify", method, over, own, **facts))
    return records


def recover_run(
    setting: Mapping[str, Any], batches: Iterable[int] = (1,), accepted: Iterable[int] = (0, 2, 4), **changes: Any
) -> list[Record]:
    """Recoveries by accepted drafts by batches, on a chain and on a tree, as `ablate recover` leaves them."""
    cost: Callable[..., float] = _commit_gpu if setting is GPU else _commit_cpu
    records = []
    accepted = tuple(accepted)
    for batch in batches:
        for shape, nodes, verify in (("chain", max(accepted) + 1, "chain"), ("b2", 31, "tree")):
            topology, info, _ = tree_info(shape, nodes)
            for count in accepted:
                times = {
                    name: cost(name, count, batch) for name in ("replay_tokens", "replay_cached", "snapshot", "factors")
                }
                for name, own in times.items():
                    over = {key: value for key, value in times.items() if key != name}
                    way = "parent_pointer" if name == "snapshot" and verify == "tree" else verify
                    facts = {"batch": batch, "nodes": nodes, "topology": info, "accepted": count, **setting, **changes}
                    facts["floor_us"] = batch * (1.05 if setting is GPU else 34.0)
                    records.append(_record("recover", Method(way, name, "none", topology), over, own, **facts))
    return records


def defer_run(setting: Mapping[str, Any], batches: Iterable[int] = (1, 8), **changes: Any) -> list[Record]:
    """A commit and a verification at once, deferred, lazily, as `ablate defer` leaves them."""
    cost: Callable[..., float] = _verify_gpu if setting is GPU else _verify_cpu
    commit: Callable[..., float] = _commit_gpu if setting is GPU else _commit_cpu
    records = []
    for batch in batches:
        for shape, nodes, verify in (
            ("chain", 5, "chain"),
            ("chain", 5, "tree"),
            ("b2", 8, "tree"),
            ("b2", 16, "tree"),
        ):
            topology, info, depth = tree_info(shape, nodes)
            at_once = cost(verify, nodes, depth, batch) + commit("factors", 2, batch)
            gain = {"factors": 1.0, "factors_deferred": 1.1 + 0.03 * batch**0.7, "factors_lazy": 1.24 + 0.02 * batch}
            for name, factor in gain.items():
                over = {} if name == "factors" else {"factors": at_once}
                facts = {"batch": batch, "nodes": nodes, "topology": info, "accepted": 2, **setting, **changes}
                facts["floor_us"] = 0.4 * at_once
                records.append(
                    _record("defer", Method(verify, name, "none", topology), over, at_once / factor, **facts)
                )
    return records


def length_sweep(
    alphas: Iterable[float] = (0.6, 0.8), lengths: Iterable[int] = (1, 2, 4, 6, 8), noise: float = 0.02
) -> list[Record]:
    """Speedup against draft levels of a chain: tau over a cost that grows with the nodes."""
    records = [ar_record(noise=noise)]
    for verify, slope in (("auto", 0.09), ("sequential_replay", 0.32)):
        for alpha in alphas:
            for length in lengths:
                tau = sum(alpha**depth for depth in range(length + 1))
                topology, info, _ = tree_info("chain", length + 1)
                changes: dict[str, Any] = {"alpha_asked": alpha, "synthetic": True, "drafter_cost": "none"}
                changes |= {"topology": info, "noise": noise, "seed": len(records)}
                method = Method(verify, "factors" if verify == "auto" else "replay_tokens", "oracle", topology)
                changes["overrides"] = (
                    f"engine.verify={verify}",
                    f"topology.length={length}",
                    f"drafter.alpha={alpha}",
                )
                speedup = tau / (1.1 + slope * length)
                records.append(decode_record(method, speedup, [alpha] * length, **changes))
    return records
