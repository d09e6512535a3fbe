"""From records to the JSON document of design.md, section 6: what `--json` prints, summary.json and the report hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, NotRequired, TypedDict

from specla.bench import stats
from specla.bench.model_labels import identity_of, model_labels
from specla.bench.record import SCHEMA, Bytes, Decoding, Kernel, Method, Record, Status, latest
from specla.bench.stats import NO_INTERVAL, Interval
from specla.bench.tally import Counts
from specla.bench.workload_labels import workload_labels, workload_of

DocumentStatus = Literal["passed", "failed", "inconclusive", "partial", "regression"]


class IntervalJson(TypedDict):
    """A median over n repeats and its 95 % interval."""

    median: float | None
    low: float | None
    high: float | None
    n: int


class MethodJson(TypedDict):
    """The names that make a method."""

    verify: str
    recover: str
    drafter: str
    topology: str
    engine: str


class CategoryJson(TypedDict):
    """A decode's figures over one category of prompts."""

    tau: float | None
    alpha: list[float | None]
    draft_efficiency: float | None
    tok_s: float | None
    speedup: IntervalJson | None


class Cell(TypedDict):
    """One cell; what its command does not measure is left out, what could not be measured is null."""

    fingerprint: str
    overrides: list[str]
    command: str
    group: str
    method: MethodJson
    batch: int
    nodes: int
    workload: str
    """What it is called, the file that was given included, so that no two of a document are called alike."""
    model: str
    """What it is called, so that no two of a document are called alike; `model_info` says what it is."""
    model_info: dict[str, Any] | None
    dtype: str
    device: str
    alpha_asked: Any
    profile: str | None
    temperature: float
    synthetic: bool
    status: str
    reason: str
    why: str
    ratio: dict[str, IntervalJson]
    lossless: NotRequired[str | None]
    near_ties: NotRequired[int]
    worst_tie: NotRequired[float | None]
    tau: NotRequired[float | None]
    alpha: NotRequired[list[float | None]]
    alpha_by_rank: NotRequired[list[list[float | None]]]
    draft_efficiency: NotRequired[float | None]
    tok_s: NotRequired[float | None]
    mbu: NotRequired[float | None]
    split_us: NotRequired[dict[str, float] | None]
    speedup: NotRequired[IntervalJson | None]
    category: NotRequired[dict[str, CategoryJson]]
    error_rms: NotRequired[float | None]
    accepted: NotRequired[int | None]
    bytes: NotRequired[int | None]
    time_us: NotRequired[IntervalJson | None]
    timing: NotRequired[str]
    floor_us: NotRequired[float | None]
    x_floor: NotRequired[float | None]


class Document(TypedDict):
    """The whole answer of a measuring command; in a report, `claims` too."""

    schema: int
    command: str
    status: DocumentStatus
    run: str
    device: str
    cells: list[Cell]
    claims: NotRequired[list[dict[str, Any]]]


def build_document(
    records: Iterable[Record], command: str, run: str, device: str, status: DocumentStatus | None = None
) -> Document:
    """The document of a run: one cell per record, the latest of each. `status` is worked out unless it is given."""
    kept = latest(records)
    return Document(
        schema=SCHEMA,
        command=command,
        status=status or overall_status(kept),
        run=run,
        device=device,
        cells=build_cells(kept),
    )


def overall_status(records: Sequence[Record]) -> DocumentStatus:
    """failed before partial before inconclusive before passed; nothing measured at all is inconclusive."""
    found = {record.status for record in records}
    if Status.FAILED in found:
        return "failed"
    if Status.PENDING in found:
        return "partial"
    if Status.INCONCLUSIVE in found or Status.PASSED not in found:
        return "inconclusive"
    return "passed"


def build_cells(records: Sequence[Record]) -> list[Cell]:
    """One cell a record, in order, with ratios to AR and to each foreign AR engine measured in the same conditions."""
    models, workloads = model_labels(records), workload_labels([workload_of(record) for record in records])
    return [
        build_cell(record, foreign_baselines(record, records), model, workload)
        for record, model, workload in zip(records, models, workloads, strict=True)
    ]


def foreign_baselines(record: Record, records: Iterable[Record]) -> dict[str, Decoding]:
    """By engine, AR as another engine decodes it, on the same workload, batch, model, dtype, device and sampling."""
    found = {}
    for other in records:
        foreign = other.method.is_ar and other.method.engine not in ("specla", record.method.engine)
        if foreign and other.decoding and _conditions(other) == _conditions(record):
            found[other.method.engine] = other.decoding
    return found


def _conditions(record: Record) -> tuple[object, ...]:
    return (workload_of(record), record.batch, identity_of(record), record.dtype, record.device, record.sampling)


def build_cell(
    record: Record, foreign: Mapping[str, Decoding] | None = None, model: str = "", workload: str = ""
) -> Cell:
    """The cell of one record. A record that did not pass keeps its names and has no ratio, speed or acceptance.

    Args:
        record: what was measured.
        foreign: see `foreign_baselines`.
        model: what it is called among others; by itself, unless given.
        workload: likewise.
    """
    cell = Cell(
        fingerprint=record.fingerprint,
        overrides=list(record.overrides),
        command=record.command,
        group=record.group,
        method=_method_json(record.method),
        batch=record.batch,
        nodes=record.nodes,
        workload=workload or workload_labels([workload_of(record)])[0],
        model=model or model_labels([record])[0],
        model_info=asdict(record.model_info) if record.model_info else None,
        dtype=record.dtype,
        device=record.device,
        alpha_asked=record.alpha_asked,
        profile=record.profile,
        temperature=record.sampling.temperature,
        # AR has no drafts whose acceptance could be made up; older records say otherwise beside an oracle.
        synthetic=record.synthetic and (record.is_kernel or not record.method.is_ar),
        status=record.status.value,
        reason=record.reason,
        why=record.why,
        ratio={},
    )
    if record.is_kernel:
        _fill_kernel(cell, record, record.kernel)
    else:
        _fill_decoding(cell, record, record.decoding, foreign or {})
    return cell


def _fill_decoding(cell: Cell, record: Record, decoding: Decoding | None, foreign: Mapping[str, Decoding]) -> None:
    cell["lossless"] = record.lossless.value if record.lossless else None
    cell["near_ties"], cell["worst_tie"] = record.near_ties, record.worst_tie
    cell["tau"] = cell["draft_efficiency"] = cell["tok_s"] = cell["mbu"] = None
    cell["alpha"], cell["split_us"], cell["speedup"], cell["category"] = [], None, None, {}
    cell["alpha_by_rank"] = []
    if decoding is None:
        return
    samples, counts = decoding.samples, decoding.counts
    speedup = speedup_to_ar(record)
    if speedup.n:
        cell["ratio"]["ar"] = cell["speedup"] = interval_json(speedup)
    for name, other in sorted(foreign.items()):
        cell["ratio"][name] = interval_json(stats.ratio_to(other.samples, samples))
    split = stats.split_us(samples)
    cell["tau"] = stats.tau(counts)
    cell["alpha"], cell["alpha_by_rank"] = stats.alpha_by_depth(counts), stats.alpha_by_rank(counts)
    cell["draft_efficiency"] = stats.draft_efficiency(counts)
    cell["tok_s"] = stats.tok_s(samples).median
    cell["mbu"] = stats.share(record.floor_us, stats.step_us(samples).median)
    cell["split_us"] = asdict(split) if split else None
    cell["category"] = _categories(decoding, counts)


def speedup_to_ar(record: Record) -> Interval:
    """Speedup of a decode that passed. AR that carries no second timing of itself is its own baseline: exactly 1."""
    decoding = record.decoding
    if decoding is None:
        return NO_INTERVAL
    found = stats.paired_ratio(decoding.samples)
    if not found.n and record.method.is_baseline:
        return stats.median_interval(1.0 for _ in stats.by_repeat(decoding.samples))
    return found


def _categories(decoding: Decoding, counts: Counts) -> dict[str, CategoryJson]:
    names = sorted({sample.category for sample in decoding.samples if sample.category} | set(counts.by_category))
    found = {}
    for name in names:
        samples = [sample for sample in decoding.samples if sample.category == name]
        tally = counts.by_category.get(name)
        speedup = stats.paired_ratio(samples)
        found[name] = CategoryJson(
            tau=stats.tau(tally) if tally else None,
            alpha=stats.alpha_by_depth(tally) if tally else [],
            draft_efficiency=stats.draft_efficiency(tally) if tally else None,
            tok_s=stats.tok_s(samples).median,
            speedup=interval_json(speedup) if speedup.n else None,
        )
    return found


def _fill_kernel(cell: Cell, record: Record, kernel: Kernel | None) -> None:
    moved = (record.bytes or Bytes()).moved_per_step
    cell["error_rms"], cell["accepted"], cell["bytes"] = stats.share(record.error_rms, 1.0), record.accepted, moved
    cell["floor_us"], cell["time_us"], cell["x_floor"] = record.floor_us, None, None
    cell["timing"] = record.timing
    if kernel is None:
        return
    time = stats.kernel_us(kernel.samples)
    cell["ratio"] = {name: interval_json(ratio) for name, ratio in stats.kernel_ratios(kernel.samples).items()}
    cell["time_us"] = interval_json(time)
    cell["x_floor"] = stats.share(time.median, record.floor_us)


def interval_json(interval: Interval) -> IntervalJson:
    """The interval as the document gives it."""
    return IntervalJson(median=interval.median, low=interval.low, high=interval.high, n=interval.n)


def _method_json(method: Method) -> MethodJson:
    names = asdict(method)
    return MethodJson(
        verify=names["verify"],
        recover=names["recover"],
        drafter=names["drafter"],
        topology=names["topology"],
        engine=names["engine"],
    )
