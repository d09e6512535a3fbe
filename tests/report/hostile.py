"""Text that means something to whatever it is shown in, for every field that text can get into."""

from typing import Any

from specla.bench.identity import ModelInfo
from specla.bench.record import Method, Record, Status
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


def hostile_records() -> list[Record]:
    """A run whose categories, ids, words, names, reasons and devices are hostile, each in turn."""
    records: list[Record] = []
    for place, text in enumerate(HOSTILE):
        info = ModelInfo(text, f"{place:012x}", *MINI.shape)
        common: dict[str, Any] = {
            "device": f"GPU {text}" if place == 3 else "NVIDIA H200",
            "model_info": info if place in (0, 1, 20, 21) else MINI,
            "workload": text if place in (2, 4) else "heldout",
            "overrides": (f"model.path={text}", f"workload.categories=[{text}]" if place == 5 else f"seed={place}"),
            "fingerprint": f"{place:064x}",
        }
        record = decode_record(Method("tree", "factors", "ngram", "chain-d3"), 1.1 + place / 50, **common)
        records += [ar_record(**{**common, "fingerprint": f"a{place:063x}"}), with_categories(record)]
    records.append(failed(decode_record(overrides=("failing",)), " ".join(HOSTILE)))
    records.append(decode_record(Method("auto", "factors", "ngram", "chain-d3"), why=f"auto: {HOSTILE[0]} {LONG}"))
    records.append(decode_record(Method("tree", "factors", "oracle", "chain-d3"), profile=HOSTILE[2], alpha_asked=0.5))
    records.append(kernel_record(overrides=tuple(f"model.hidden_size={text}" for text in HOSTILE[:3])))
    return records


def with_categories(record: Record) -> Record:
    """The decode, of prompts of which each has a hostile category and id."""
    one = record.samples[0]
    samples = tuple(
        type(one)(**{**vars(one), "repeat": repeat, "item": item, "category": text, "prompts": (text,)})
        for repeat in range(5)
        for item, text in enumerate(HOSTILE)
    )
    return Record(**{**vars(record), "samples": samples})


def failed(record: Record, reason: str) -> Record:
    """The cell, had it failed."""
    return Record(**{**vars(record), **unmeasured(record, Status.FAILED, reason)})


HOSTILE_ENV: dict[str, Any] = {**ENV, "device": HOSTILE[2], "cpu": {"model": HOSTILE[1], "name": HOSTILE[8]}}
