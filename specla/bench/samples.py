"""Raw timings as records keep them: of decodes and of single operations, each beside its baseline's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from specla.bench.codec import measured
from specla.bench.tally import Counts


@dataclass(frozen=True)
class Split:
    """Where a step's time goes, in microseconds per step."""

    draft: float = field(metadata=measured(least=0))
    verify: float = field(metadata=measured(least=0))
    accept: float = field(metadata=measured(least=0))
    commit: float = field(metadata=measured(least=0))


@dataclass(frozen=True)
class Sample:
    """One timed decode of one batch of prompts, beside AR's decode of the same batch in the same repeat."""

    repeat: int = field(metadata=measured(least=0))
    item: int = field(metadata=measured(least=0))  # index of the prompt batch
    seconds: float = field(metadata=measured())
    tokens: int = field(metadata=measured())
    steps: int = field(metadata=measured())
    category: str = ""
    prompts: tuple[str, ...] = ()
    order: int = field(default=0, metadata=measured(least=0))  # place in the interleaving of its repeat
    ar_seconds: float | None = field(default=None, metadata=measured())
    ar_tokens: int | None = field(default=None, metadata=measured())
    split_us: Split | None = None


@dataclass(frozen=True)
class KernelSample:
    """One timing of one operation, beside those of its baselines in the same repeat."""

    repeat: int = field(metadata=measured(least=0))
    time_us: float = field(metadata=measured())
    order: int = field(default=0, metadata=measured(least=0))
    baseline_us: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), metadata=measured())


@dataclass(frozen=True)
class Decoding:
    """The performance of a decode that passed its gate."""

    samples: tuple[Sample, ...]
    counts: Counts


@dataclass(frozen=True)
class Kernel:
    """The performance of one operation whose results were right."""

    samples: tuple[KernelSample, ...]
