"""What one measured cell leaves behind. Raw samples and counts are stored; every median, interval and ratio is computed
from them later, by `specla.bench.stats`.

A line of records.jsonl ends with a checksum of the rest of it, and what contradicts itself is no record (`tally.py`,
`samples.py`, `Record`): a line that was changed by hand or by a disk is damage, told with its number. Lines without a
checksum, as earlier versions wrote them, are read all the same.

Performance is for cells that passed: `Record.decoding` and `Record.kernel` are the only way to the samples that ratios
are made of, and both are None for a cell that failed, is pending or does not apply.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from specla.bench.choice import TreeChoice
from specla.bench.codec import MANY, decode, encode, measured, shortened
from specla.bench.identity import ModelInfo
from specla.bench.samples import Decoding as Decoding
from specla.bench.samples import Kernel as Kernel
from specla.bench.samples import KernelSample as KernelSample
from specla.bench.samples import Sample as Sample
from specla.bench.samples import Split as Split
from specla.bench.tally import Counts
from specla.errors import SpeclaError, first_line

SCHEMA = 1
KERNEL_GROUPS = ("verify", "recover", "defer")
"""The ablations that time one operation rather than a whole decode."""
CHECKSUM, _DIGITS = "sha256", 16
"""The last field of a line: so many hexadecimal digits of the hash of the line without it."""
_COUNT = measured(least=0, below=MANY)


class Status(StrEnum):
    """How a cell ended. Only `passed` and `inconclusive` carry performance."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    NOT_APPLICABLE = "not_applicable"
    PENDING = "pending"


class Lossless(StrEnum):
    """What the losslessness gate found in the emitted text."""

    EXACT = "exact"
    NEAR_TIE = "near_tie"
    FAILED = "failed"


@dataclass(frozen=True)
class Method:
    """The names that make a method; together they are what an ablation is a list of."""

    verify: str  # `ar` is zero drafts
    recover: str = "none"
    drafter: str = "none"  # oracle, ngram or aligned; `none` for AR
    topology: str = "root"  # name of the tree; `root` for AR
    engine: str = "specla"  # or the foreign baseline's name

    @property
    def is_ar(self) -> bool:
        """Whether it decodes without drafts."""
        return self.verify == "ar"

    @property
    def is_baseline(self) -> bool:
        """Whether it is the AR that speedups are against: our engine, committing at once."""
        return self.is_ar and self.engine == "specla" and self.recover in ("none", "in_place")


@dataclass(frozen=True)
class TopologyInfo:
    """The tree as asked for; what its kind does not use is None."""

    name: str
    """chain, kary, explicit, confidence, auto; `root` for AR."""
    length: int | None = None  # draft levels D
    branching: int | None = None
    nodes: int | None = None  # T, root included
    parents: tuple[int, ...] | None = None
    margin: float | None = None
    """Confidence trees: the pruning margin."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0


@dataclass(frozen=True)
class Bytes:
    """Bytes held (state, weights) and bytes that one step must move; for a kernel, one call."""

    state: int | None = field(default=None, metadata=_COUNT)
    weights: int | None = field(default=None, metadata=_COUNT)
    moved_per_step: int | None = field(default=None, metadata=_COUNT)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One cell: what was asked, how it ended, and the raw measurements. One line of records.jsonl."""

    command: str  # `bench e2e`, `ablate verify`, ...
    fingerprint: str  # covers config, code, weights, data and device
    method: Method
    status: Status
    batch: int = field(metadata=measured())
    nodes: int = field(metadata=measured())
    """T, root included; the largest where it varies."""
    workload: str
    dtype: str
    device: str
    model: str
    """The option's name; which model it was, `model_info` says."""
    schema: int = SCHEMA
    model_info: ModelInfo | None = None
    """None where it could not be told, and in older records."""
    source: str = ""
    """What the workload reads (see `workload_labels`); empty for what comes with specla, and in older records."""
    overrides: tuple[str, ...] = ()
    group: str = "main"
    """`main`, or the section of an experiment: verify, recover, defer, acceptance, length."""
    reason: str = ""
    """Why it failed, does not apply or is inconclusive."""
    topology: TopologyInfo = TopologyInfo("root")
    alpha_asked: float | tuple[tuple[float, ...], ...] | None = None
    """The oracle's acceptance; [depth][rank] where it is not one number."""
    drafter_cost: str | None = None
    """Oracle: `aligned` where a real drafter's work is done and timed, `none` where drafts are free."""
    profile: str | None = None
    """Oracle: the name of the file that its acceptance is from; `alpha_asked` is what the file holds."""
    synthetic: bool = False
    """Whether acceptance or weights are made up."""
    sampling: Sampling = Sampling()
    lossless: Lossless | None = None
    near_ties: int = field(default=0, metadata=_COUNT)
    gate_positions: int = field(default=0, metadata=_COUNT)
    worst_tie: float | None = field(default=None, metadata=measured(least=0))
    """Of the near ties, the largest margin as a share of its bound, 0 to 1; None without any, and in older records."""
    samples: tuple[Sample | KernelSample, ...] = ()
    counts: Counts | None = None
    bytes: Bytes | None = None
    memory: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), metadata=_COUNT)
    error_rms: float | None = None  # kernels: relative RMS error against the reference
    accepted: int | None = field(default=None, metadata=_COUNT)  # kernels: accepted tokens in the measured case
    floor_us: float | None = field(default=None, metadata=measured(least=0))
    """Bytes that must move over the bandwidth measured in the same run; per call, or per step of a decode."""
    why: str = ""
    """`auto` alone: what it picked, and why."""
    choice: TreeChoice | None = None
    """topology=auto: how its tree was chosen."""
    timing: str = ""
    """Kernels on a GPU: `graph`, or `eager: ` and why launches are in the times; `; ` and what else to know."""
    started: str = ""  # ISO time
    seconds: float = field(default=0.0, metadata=measured(least=0))  # wall time of the cell

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise SpeclaError(f"record has schema {self.schema}; this version reads {SCHEMA}")
        kinds = {type(sample) for sample in self.samples}
        if len(kinds) > 1:
            raise SpeclaError("samples: decode and kernel samples are mixed in one record")
        if self.status in (Status.FAILED, Status.NOT_APPLICABLE) and not self.reason:
            raise SpeclaError(f"status {self.status.value} needs a reason")
        if self.near_ties > self.gate_positions:
            raise SpeclaError(f"{self.near_ties} near ties in {self.gate_positions} positions")
        self._check_samples()
        if self.status is not Status.PASSED:
            return
        if not self.samples:
            raise SpeclaError("status passed needs samples")
        if self.lossless is Lossless.FAILED:
            raise SpeclaError("status passed contradicts lossless failed")
        if kinds == {Sample} and self.counts is None:
            raise SpeclaError("a decode that passed needs counts")
        if kinds == {Sample} and self.lossless is None and not self.method.is_ar:
            raise SpeclaError("a decode that passed needs its losslessness: exact or near_tie")

    def _check_samples(self) -> None:
        """Raise SpeclaError where a sample is there twice, or emitted more than its steps can have."""
        if len(set(map(repr, self.samples))) < len(self.samples):
            raise SpeclaError("samples: one is there twice")
        decodes = [sample for sample in self.samples if isinstance(sample, Sample)]
        windows = {(sample.repeat, sample.item) for sample in decodes}
        # AR is timed again beside every few methods.
        if len(windows) < len(decodes) and not self.method.is_baseline:
            raise SpeclaError("samples: a repeat has the same prompts twice")
        for index, sample in enumerate(decodes):
            # A step emits a token of every row, and at most all of its nodes.
            least, most = sample.steps, sample.steps * self.batch * self.nodes
            if not least <= sample.tokens <= most:
                told = f"{sample.tokens} tokens in {sample.steps} steps of {self.nodes} nodes and batch {self.batch}"
                raise SpeclaError(f"samples[{index}]: {told}: {least} to {most} can be")

    @property
    def is_kernel(self) -> bool:
        """Whether it times one operation rather than a decode."""
        if self.samples:
            return isinstance(self.samples[0], KernelSample)
        return self.group in KERNEL_GROUPS or self.command in [f"ablate {group}" for group in KERNEL_GROUPS]

    @property
    def decoding(self) -> Decoding | None:
        """What speeds are computed from; None unless a decode was measured and its gate held."""
        samples = tuple(sample for sample in self.samples if isinstance(sample, Sample))
        if not self._has_performance or self.counts is None or not samples:
            return None
        return Decoding(samples, self.counts)

    @property
    def kernel(self) -> Kernel | None:
        """What kernel times are computed from; None unless one was measured and its results were right."""
        samples = tuple(sample for sample in self.samples if isinstance(sample, KernelSample))
        return Kernel(samples) if self._has_performance and samples else None

    @property
    def _has_performance(self) -> bool:
        return self.status in (Status.PASSED, Status.INCONCLUSIVE) and self.lossless is not Lossless.FAILED

    @property
    def key(self) -> tuple[object, ...]:
        """Which cell of the plan it is, whatever the code was: a later record with the same key replaces it."""
        asked = (self.command, self.group, self.overrides, self.workload, self.batch, self.alpha_asked)
        return (*asked, self.method, self.model, self.dtype, self.device, self.sampling, self.drafter_cost)


def to_json(record: Record) -> str:
    """The record as one line of JSON with its checksum, without the line's end."""
    text = _canonical(encode(record))
    return f'{text[:-1]},"{CHECKSUM}":"{_checksum(text)}"}}'


def from_json(line: str, where: str) -> Record:
    """The record that a line holds.

    Raises SpeclaError that opens with `where` ('FILE:LINE') and names the field, or says that the line was changed.
    """
    return from_line(line, where)[0]


def from_line(line: str, where: str) -> tuple[Record, bool]:
    """The same, and whether the line has a checksum."""
    try:
        data = json.loads(line)
        if not isinstance(data, dict):
            raise SpeclaError(f"{where}: damaged record, not an object")
        if data.get("schema") != SCHEMA:
            found = shortened(data.get("schema"))
            raise SpeclaError(f"{where}: record has schema {found}; this version reads {SCHEMA}")
        checksum = data.pop(CHECKSUM, None)
        record = decode(Record, data, f"{where}: record")
    except (ValueError, RecursionError) as error:
        raise SpeclaError(f"{where}: damaged record, not JSON ({first_line(error)})") from None
    assert isinstance(record, Record)
    if checksum is not None and checksum != _checksum(_canonical(data)):
        raise SpeclaError(f"{where}: damaged record, changed since it was written: its {CHECKSUM} is of another line")
    return record, checksum is not None


def _canonical(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def latest(records: Iterable[Record]) -> list[Record]:
    """One record a cell, in order of first appearance: the last written, though pending hides no result of its code."""
    by_key: dict[tuple[object, ...], Record] = {}
    results: dict[tuple[object, ...], Record] = {}
    for record in records:
        if record.status is not Status.PENDING:
            results[record.key, record.fingerprint] = record
        by_key[record.key] = results.get((record.key, record.fingerprint), record)
    done = {record.fingerprint for record in by_key.values() if record.status is not Status.PENDING}
    return [r for r in by_key.values() if r.status is not Status.PENDING or r.fingerprint not in done]
