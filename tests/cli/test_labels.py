"""The names of a table's rows."""

from typing import Any

import pytest

from specla.bench.cells import Cell
from specla.bench.plan import plan
from specla.cli.labels import Place, drafter_in, place_in, place_labels, place_of


def cell(*overrides: str, **more: Any) -> dict[str, Any]:
    """A decode as a document has it."""
    return {"workload": "heldout", "overrides": list(overrides), "method": {"drafter": "aligned"}, **more}


def planned_place(cell: Cell) -> Place:
    """Of a planned decode, by names alone."""
    return place_of(cell, "", cell.settings.workload.name)


def test_what_all_cells_share_is_not_told() -> None:
    same = Place("heldout", "code", batch=8, temperature=0.8)
    assert place_labels([same, same]) == ["heldout"] * 2
    assert place_labels([]) == []


def test_what_varies_is_told() -> None:
    places = [
        place_in(cell("workload.categories=[arithmetic,code]", batch=1, temperature=0.0)),
        place_in(cell("workload.categories=null", batch=8, temperature=0.8)),
    ]
    assert place_labels(places) == [
        "heldout (arithmetic and code), batch\u00a01, T\u00a0=\u00a00",
        "heldout, batch\u00a08, T\u00a0=\u00a00.8",
    ]
    assert place_labels(places, short=True) == ["arithmetic and code B=1 T=0", "all B=8 T=0.8"]
    nuclei = [Place("heldout", temperature=0.8, top_p=share) for share in (0.9, 1.0)]
    assert place_labels(nuclei) == ["heldout, top-p\u00a0=\u00a00.9", "heldout, top-p\u00a0=\u00a01"]
    models = [Place("heldout", model=name) for name in ("a (9.5 M)", "b (9.5 M)")]
    assert place_labels(models) == ["heldout, a (9.5 M)", "heldout, b (9.5 M)"]
    assert place_labels(models, short=True) == ["a (9.5 M)", "b (9.5 M)"]
    two = [Place("heldout"), Place("gsm8k")]
    assert place_labels(two, short=True) == ["heldout", "gsm8k"] and place_labels(two[:1], short=True) == [""]


def test_a_plan_and_its_results_call_cells_alike() -> None:
    planned = plan("bench e2e", ["experiment=vocabulary", "workload.categories=[code],null"]).cells
    found = [
        {
            "workload": one.settings.workload.name,
            "overrides": list(one.overrides),
            "temperature": one.settings.sampling.temperature,
            "method": {"drafter": one.settings.drafter.name},
        }
        for one in planned
    ]
    assert place_labels([planned_place(one) for one in planned]) == place_labels([place_in(one) for one in found])
    assert [one.drafter_label for one in planned] == [drafter_in(one) for one in found]
    names = list(
        zip(
            place_labels([planned_place(one) for one in planned]),
            [one.drafter_label for one in planned],
            strict=True,
        )
    )
    assert ("heldout (code), T\u00a0=\u00a00.8", "aligned 2048") in names


@pytest.mark.parametrize(
    ("words", "more", "told"),
    [
        ((), {}, "aligned"),
        (("drafter.vocabulary=null",), {}, "aligned"),
        (("drafter.vocabulary=2048",), {}, "aligned 2048"),
        (
            ("drafter.cost=aligned",),
            {"method": {"drafter": "oracle"}, "alpha_asked": 0.8, "synthetic": True},
            "oracle 0.8 paid ~",
        ),
        (
            ("drafter.cost=aligned", "drafter.vocabulary=8000"),
            {"method": {"drafter": "oracle"}, "alpha_asked": 0.8, "synthetic": True},
            "oracle 0.8 paid 8000 ~",
        ),
    ],
)
def test_drafters(words: tuple[str, ...], more: dict[str, Any], told: str) -> None:
    assert drafter_in(cell(*words, **more)) == told
