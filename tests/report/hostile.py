"""Text that means something to whatever it is shown in, for every field that text can get into."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specla.bench.record import Method, Record, Sample, Status
from tests.factory import ENV, MINI, ar_record, decode_record, kernel_record, unmeasured

LONG = "word" * 75
HOSTILE = (
    "$\\frac{$",
    "one\n# heading\n\n- item",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "![y](http://a.example/b.png)",
    "a|b|c",
    "`code` *bold* _slanted_ ~~gone~~",
    "[red]red[/red] :smile:",
    "\x1b[31mred\x1b[0m\x9b2J\x07",
    "\u202eright to left\u2066",
    "\x00nul\x7f\r\n\ttab",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "漢字" * 40,
    "👨‍👩‍👧 مرحبا",
    "\ud800 half",
    "&lt;b&gt; &#60;i&#62;",
    "1. item",
    "> quoted",
    "_hidden",
    LONG + "a",
    LONG + "b",
)
EVERYTHING = " ".join(HOSTILE)
HOSTILE_ENV: dict[str, Any] = {**ENV, "device": HOSTILE[2], "cpu": {"model": HOSTILE[1], HOSTILE[4]: HOSTILE[8]}}


def hostile_records() -> list[Record]:
    """A run in which every free text is hostile: one setting of decodes, one of operations."""
    setting: dict[str, Any] = {"device": EVERYTHING, "model_info": replace(MINI, name=EVERYTHING), "model": HOSTILE[2]}
    records = [ar_record(**setting, workload=text) for text in HOSTILE]
    records += [
        decode_record(Method("tree", "factors", "ngram", "chain-d3"), 1.1 + place / 50, workload=text, **setting)
        for place, text in enumerate(HOSTILE)
    ]
    methods = [Method("tree", "factors", "aligned", "chain-d3"), Method("auto", "factors", "aligned", "chain-d3")]
    told = {**setting, "overrides": HOSTILE, "why": f"auto: {EVERYTHING}"}
    records += [with_categories(decode_record(method, 1.4, **told)) for method in methods]
    oracle = Method("tree", "factors", "oracle", "chain-d3")
    records.append(decode_record(oracle, profile=EVERYTHING, alpha_asked=0.5, **setting))
    lost = {"workload": "lost", **setting}
    for text in (*HOSTILE[:3], EVERYTHING):
        record = decode_record(**{**lost, "overrides": (text,)})
        records.append(Record(**{**vars(record), **unmeasured(record, Status.FAILED, text)}))
    operation: dict[str, Any] = {"model": HOSTILE[3], "device": HOSTILE[6], "timing": f"eager: {EVERYTHING}"}
    words = tuple(f"model.{text}" for text in HOSTILE)
    records += [
        kernel_record(method=Method(verify, "factors", "none", "kary-b2-n15"), overrides=words, **operation)
        for verify in ("hybrid", "sequential_replay")
    ]
    return records


def with_categories(record: Record, categories: Sequence[str] = HOSTILE) -> Record:
    """The decode, of prompts of which each has a hostile category and id."""
    one = record.samples[0]
    assert isinstance(one, Sample)
    samples = tuple(
        replace(one, repeat=repeat, item=item, category=text, prompts=(text,), seconds=one.seconds * (1 + item / 40))
        for repeat in range(5)
        for item, text in enumerate(categories)
    )
    return replace(record, samples=samples)
