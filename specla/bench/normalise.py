"""One form for every cell: what is not used is null, what is automatic is decided, so that equal cells are equal.

Nothing is dropped in silence: what was dropped comes back with its reason, and what was changed comes back as a note.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from specla import topology
from specla.bench.settings import (
    GROUPS,
    DrafterSettings,
    EngineSettings,
    SamplingSettings,
    Settings,
    TopologySettings,
    WorkloadSettings,
    get,
    put,
)
from specla.bench.strategies import AUTO, NOT_BUILT, VERIFY
from specla.bench.validate import check_names, missing_inputs, show, used, validate
from specla.errors import SpeclaError
from specla.topology import DraftTree

END_TO_END = "bench e2e"
"""The command whose cells decode, verified and timed beside AR."""

KERNEL_COMMANDS = ("ablate verify", "ablate recover", "ablate defer")
"""Commands that time kernels on random inputs: nothing is drafted or decoded."""


@dataclass
class Normal:
    """Settings in normal form, and how they came to it."""

    settings: Settings
    dropped: dict[str, str] = field(default_factory=dict)
    """By dial (or group, where the whole of it is not used): why it is not used."""
    notes: list[str] = field(default_factory=list)
    """What was changed, and to what."""

    def set(self, key: str, value: Any) -> None:
        """Decide a dial."""
        self.settings = put(self.settings, {key: value})

    def drop(self, key: str, why: str, value: Any = None) -> None:
        """Give a dial that is not used its neutral value."""
        if get(self.settings, key) != value:
            self.dropped[key] = why
            self.set(key, value)

    def drop_group(self, group: str, why: str, value: Any) -> None:
        """Give every dial of a group its neutral value."""
        for name in (entry.name for entry in dataclasses.fields(value)):
            self.drop(f"{group}.{name}", why, getattr(value, name))
        if f"{group}.name" in self.dropped:
            self.dropped[group] = why


def normalise(settings: Settings, command: str) -> Normal:
    """The normal form of one composed cell of a command. Raises SpeclaError for what `validate` refuses."""
    check_names(settings)
    normal = Normal(settings)
    if command in KERNEL_COMMANDS:
        _drop_decoding(normal, command)
    elif settings.workload.name == "none":
        raise SpeclaError(f"workload=none: {command} decodes prompts; choose a workload that has some")
    _drop_for_ar(normal)
    _drop_unused(normal)
    _drop_measure(normal, command)
    _settle_recovery(normal)
    validate(normal.settings)
    if "topology" not in missing_inputs(normal.settings):
        _settle_tree(normal)
    _settle_prompts(normal)
    return normal


def build_tree(settings: TopologySettings) -> DraftTree:
    """The tree of a topology. One that is shaped anew at every step gives the largest it can be within its nodes.

    Raises SpeclaError where a dial is out of range or missing.
    """
    name, nodes, length, branching = settings.name, settings.nodes, settings.length, settings.branching
    if name == "root":
        return topology.chain(0)
    if name == "chain" and length is not None:
        return topology.chain(length)
    if name == "kary" and branching is not None and nodes is not None:
        return topology.kary(branching, nodes, length)
    if name == "explicit" and settings.parents is not None:
        return topology.explicit(settings.parents)
    if name == "confidence" and branching is not None and nodes is not None:
        levels = min(nodes - 1, length or nodes - 1)
        # As deep as it may get, the other nodes wherever: what is drafted takes its shape from the drafter.
        parents = (*range(-1, levels), *[0] * (nodes - 1 - levels))
        margin = "off" if settings.margin is None else show(settings.margin)
        return DraftTree(parents, f"confidence-b{branching}-m{margin}-n{nodes}-l{levels}")
    if name == AUTO and nodes is not None:
        return DraftTree(topology.chain(nodes - 1).parents, f"auto-n{nodes}")
    raise SpeclaError(f"topology={name}: no such topology, or a dial that it needs is null")


def not_built(settings: Settings, command: str) -> str | None:
    """What of these settings does not exist yet for a command, or None."""
    for row in NOT_BUILT:
        concerns = (not row.commands or command in row.commands) and row.device in ("", settings.device)
        if concerns and get(settings, row.dial) == row.value:
            return row.what
    return None


def _drop_decoding(normal: Normal, command: str) -> None:
    why = f"{command} times kernels on random inputs"
    normal.drop_group("drafter", why, DrafterSettings(name="none"))
    batch = normal.settings.workload.batch
    normal.drop_group("workload", why, WorkloadSettings(name="none", batch=batch))
    for key in (f"sampling.{entry.name}" for entry in dataclasses.fields(SamplingSettings)):
        normal.drop(key, why, get(Settings(), key))
    normal.drop("engine.adaptive", why)
    normal.drop("model.path", why)
    normal.drop("model.weights", why, "random")


def _drop_for_ar(normal: Normal) -> None:
    engine = normal.settings.engine
    if engine.name != "specla":
        why = f"engine={engine.name} decodes one token at a time in its own way"
        normal.drop_group("engine", why, EngineSettings(name=engine.name, verify="ar", recover="in_place"))
    elif engine.verify == "ar":
        why = "engine.verify=ar drafts nothing"
        normal.drop("engine.adaptive", why)
        if engine.recover not in (AUTO, *VERIFY["ar"].recovers):
            normal.drop("engine.recover", why, "in_place")
    else:
        if normal.settings.topology.name == "root":
            raise SpeclaError("topology.name=root: only engine.verify=ar decodes without drafts")
        return
    normal.drop_group("drafter", why, DrafterSettings(name="none"))
    normal.drop_group("topology", why, TopologySettings(name="root"))


def _drop_unused(normal: Normal) -> None:
    for group in GROUPS:
        choice = get(normal.settings, f"{group}.name")
        keep = used(group, choice)
        if keep is not None:
            for entry in dataclasses.fields(getattr(normal.settings, group)):
                if entry.name not in ("name", *keep):
                    normal.drop(f"{group}.{entry.name}", f"{group}={choice} does not use it")
    if normal.settings.drafter.profile is not None:
        normal.drop("drafter.alpha", "drafter.profile is used in its place")
    if normal.settings.drafter.name == "oracle" and normal.settings.drafter.cost != "aligned":
        normal.drop("drafter.vocabulary", "drafter.cost=none runs no drafter")
    if normal.settings.model.weights == "random":
        normal.drop("model.path", "model.weights=random reads no checkpoint")
    if normal.settings.sampling.temperature == 0:
        normal.drop("sampling.top_p", "sampling.temperature=0 is greedy", 1.0)


def _drop_measure(normal: Normal, command: str) -> None:
    if command not in KERNEL_COMMANDS:
        normal.drop("measure.sample_ms", f"{command} times whole decodes")
    if normal.settings.topology.name != AUTO:
        normal.drop("measure.calibration", f"topology={normal.settings.topology.name} is not chosen by measuring")
    if command not in ("ablate recover", "ablate defer"):
        normal.drop("measure.accepted", f"{command} commits what was accepted")


def _settle_recovery(normal: Normal) -> None:
    engine = normal.settings.engine
    if engine.verify is not None and engine.recover == AUTO:
        normal.set("engine.recover", VERIFY[engine.verify].recovers[0])
    recover = normal.settings.engine.recover
    if recover != "factors_lazy":
        normal.drop("engine.ring", f"engine.recover={recover} keeps no ring")
    elif normal.settings.engine.ring is None:
        raise SpeclaError("engine.ring=null: engine.recover=factors_lazy needs it")


def _settle_tree(normal: Normal) -> None:
    asked = normal.settings.topology
    tree = build_tree(asked)
    if asked.name == "confidence":
        normal.set("topology.length", tree.depth)
    if asked.name != "kary":
        return
    of = f"of branching {asked.branching}"
    if asked.length is not None and asked.length > tree.depth:
        normal.notes.append(
            f"topology.length={asked.length}: {asked.nodes} nodes {of} reach {tree.depth} levels; taken as {tree.depth}"
        )
    if asked.nodes != tree.nodes:
        normal.notes.append(
            f"topology.nodes={asked.nodes}: {tree.depth} levels {of} hold {tree.nodes} nodes; taken as {tree.nodes}"
        )
    normal.set("topology.length", tree.depth)
    normal.set("topology.nodes", tree.nodes)


def _settle_prompts(normal: Normal) -> None:
    workload = normal.settings.workload
    if workload.prompts is None or workload.prompts % workload.batch == 0:
        return
    whole = -(-workload.prompts // workload.batch) * workload.batch
    normal.notes.append(
        f"workload.prompts={workload.prompts}: no whole number of batches of {workload.batch}; taken as {whole}"
    )
    normal.set("workload.prompts", whole)
