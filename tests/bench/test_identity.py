"""Which model a cell decodes, and what several models are called."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specla.bench.identity import ModelInfo, checkpoint_info, option_info, seen_info
from specla.bench.model_labels import identity_of, model_labels
from specla.bench.plan import plan
from specla.bench.planned import planned_record
from specla.bench.record import Record, from_json, to_json
from specla.bench.summary import build_cells
from specla.bench.trained import known_models
from specla.errors import SpeclaError
from specla.models.checkpoint import weights_digest
from specla.models.folder import ASSETS
from specla.report.evidence import PUBLISHED_SHAPE
from tests.factory import MINI, PUBLISHED, ar_record, decode_record, kernel_record

BUNDLED = ASSETS / "gdn-mini"


def planned(*words: str) -> Record:
    """The record of a plan's first cell, as a run would write it."""
    found = plan("bench e2e", [*words, "drafter=ngram"])
    cell = found.cells[0]
    return planned_record(cell, "0", "cpu", "float32", known_models(found)[cell.config_hash])


def test_the_bundled_model_under_another_option_is_what_it_is() -> None:
    record = planned("model=gdn-1.3b", f"model.path={BUNDLED}")
    info = record.model_info
    assert info is not None and record.model == "gdn-1.3b"
    assert (info.name, info.weights) == ("gdn-mini", weights_digest(BUNDLED)[:12])
    assert (info.layers, info.hidden, info.heads, info.vocab, info.parameters) == (8, 256, 4, 8192, 9_483_072)
    assert info.shape == MINI.shape and info.label == "gdn-mini (9.5 M)"
    bundled = planned("model=gdn-mini")
    assert bundled.model_info == info and identity_of(bundled) == identity_of(record)


def test_random_weights_have_the_options_name_and_say_so() -> None:
    info = planned("model=gdn-1.3b", "model.weights=random", "seed=3").model_info
    assert info is not None and (info.name, info.weights) == ("gdn-1.3b", "random seed 3")
    assert info.is_random and info.label == "gdn-1.3b (1.5 B, random weights)"


def test_the_published_shape_is_that_of_its_option() -> None:
    cell = plan("bench e2e", ["model=gdn-1.3b", "model.weights=random", "drafter=ngram"]).cells[0]
    assert option_info(cell.settings.model, "").shape == PUBLISHED_SHAPE == PUBLISHED.shape
    for other in ("gdn-1.3b-fla", "gdn-340m", "gdn-mini"):
        cell = plan("bench e2e", [f"model={other}", "model.weights=random", "drafter=ngram"]).cells[0]
        assert option_info(cell.settings.model, "").shape != PUBLISHED_SHAPE


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ({}, "my folder"),
        ({"_name_or_path": "/home/x/gdn-published"}, "gdn-published"),
        ({"_name_or_path": "fla-hub/gdn"}, "gdn"),
        ({"_name_or_path": ""}, "my folder"),
        ({"_name_or_path": "../.."}, "my folder"),
        ({"_name_or_path": 3}, "my folder"),
    ],
)
def test_a_checkpoint_is_called_as_its_config_says_else_as_its_folder(
    own: dict[str, Any], name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "my folder"
    folder.mkdir()
    raw = json.loads((BUNDLED / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**raw, **own}))
    found = checkpoint_info(folder, "0123456789abcdef")
    assert (found.name, found.weights) == (name, "0123456789ab")


def test_a_damaged_config_is_an_error_and_a_dry_run_leaves_it_to_the_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(SpeclaError, match=r"config\.json: "):
        checkpoint_info(tmp_path, "")
    cell = plan("bench e2e", [f"model.path={tmp_path}", "drafter=ngram"]).cells[0]
    assert seen_info(cell.settings.model, 0, "bench e2e") is None
    assert planned(f"model.path={tmp_path}").model_info is None


def test_a_dry_run_reads_config_json_alone(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    shutil.copy(BUNDLED / "config.json", folder)
    cell = plan("bench e2e", ["model=gdn-1.3b", f"model.path={folder}", "drafter=ngram"]).cells[0]
    found = seen_info(cell.settings.model, 0, "bench e2e")
    assert found is not None and (found.name, found.parameters, found.weights) == ("copy", 9_483_072, "")
    operation = seen_info(cell.settings.model, 0, "ablate verify")
    assert operation is not None and operation.name == "gdn-1.3b" and operation.shape == PUBLISHED_SHAPE


def test_a_record_keeps_its_identity_and_an_older_one_loads_without() -> None:
    record = decode_record(model_info=MINI, worst_tie=0.31)
    assert from_json(to_json(record), "x") == record
    older = json.loads(to_json(record))
    for name in ("model_info", "worst_tie", "sha256"):
        del older[name]
    found = from_json(json.dumps(older), "x")
    assert found.model_info is None and found.worst_tie is None and model_labels([found]) == ["gdn-mini"]


def labels(*models: ModelInfo | None, words: tuple[tuple[str, ...], ...] = ()) -> list[str]:
    told = words or ((),) * len(models)
    return model_labels([ar_record(model_info=one, overrides=own) for one, own in zip(models, told, strict=True)])


def test_models_of_one_name_are_told_apart() -> None:
    other = replace(MINI, weights="ffffffffffff")
    assert labels(MINI, MINI) == ["gdn-mini (9.5 M)"] * 2
    assert labels(MINI, other) == ["gdn-mini (9.5 M), 0123456789ab", "gdn-mini (9.5 M), ffffffffffff"]
    assert labels(MINI, replace(MINI, name="again")) == ["gdn-mini (9.5 M)"] * 2, "a name makes no other model"
    drawn = replace(MINI, weights="random seed 0")
    assert len(set(labels(drawn, replace(drawn, weights="random seed 1"), replace(drawn, heads=2, head_dim=128)))) == 3
    paths = (("model.path=/a",), ("model.path=/b",))
    assert labels(MINI, MINI, words=paths) == ["gdn-mini (9.5 M) at /a", "gdn-mini (9.5 M) at /b"]


def test_older_records_are_told_apart_by_their_words() -> None:
    words = ((), ("model.path=/a",), ("model.path=/b",), ("model.weights=random",))
    found = labels(None, None, None, None, words=words)
    assert found == ["gdn-mini", "gdn-mini at /a", "gdn-mini at /b", "gdn-mini (random weights)"]


def test_an_operation_is_called_like_the_model_of_its_shape() -> None:
    shape = replace(PUBLISHED, weights="")
    operation, drawn = kernel_record(model_info=shape), replace(PUBLISHED, weights="random seed 0")
    assert model_labels([operation]) == ["gdn-1.3b"]
    decode = ar_record(model="gdn-1.3b", model_info=drawn)
    assert model_labels([operation, decode]) == ["gdn-1.3b (1.5 B, random weights)"] * 2
    turned = kernel_record(model_info=replace(shape, heads=4), overrides=("model.num_heads=4",))
    assert len(set(model_labels([operation, turned, decode]))) == 1
    mini = ar_record(model="gdn-1.3b", model_info=MINI)
    assert model_labels([operation, mini]) == ["gdn-1.3b", "gdn-mini (9.5 M)"]


def test_foreign_ar_of_other_weights_is_no_baseline() -> None:
    foreign = replace(ar_record(model_info=MINI), method=replace(ar_record().method, engine="fla-graph"))
    alike, other = (decode_record(model_info=one) for one in (MINI, replace(MINI, weights="ffffffffffff")))
    cells = build_cells([foreign, alike, other])
    assert ["fla-graph" in cell["ratio"] for cell in cells] == [False, True, False]
    assert cells[1]["model_info"] == vars(MINI) and cells[1]["model"] != cells[2]["model"]
