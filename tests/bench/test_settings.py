"""The dials, their ranges, and the shipped options of every group."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from specla.bench import strategies
from specla.bench.confdir import conf_dir
from specla.bench.normalise import build_tree
from specla.bench.plan import plan
from specla.bench.settings import (
    GROUPS,
    DrafterSettings,
    Settings,
    TopologySettings,
    WorkloadSettings,
    config_hash,
    dials,
    get,
    put,
    to_plain,
)
from specla.bench.validate import used
from specla.errors import SpeclaError

CONF = conf_dir()
OPTIONS = [path for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]


def cell_settings(*words: str) -> Settings:
    """The settings of the one cell that these words give beside AR."""
    cells = [cell for cell in plan("bench e2e", words).cells if cell.method.verify != "ar"]
    assert len(cells) == 1
    return cells[0].settings


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_option_writes_every_dial_and_nulls_what_it_does_not_use(path: Path) -> None:
    option = yaml.safe_load(path.read_text())
    group, name = path.parent.name, path.stem
    schema = Settings.__dataclass_fields__[group].type
    assert isinstance(schema, type)
    assert list(option) == [entry.name for entry in dataclasses.fields(schema)]
    assert option["name"] == name
    keep = used(group, name)
    if keep is not None:
        assert [dial for dial, value in option.items() if value is not None and dial not in ("name", *keep)] == []


def test_the_groups_have_the_options_of_the_design() -> None:
    names = {group: sorted(path.stem for path in OPTIONS if path.parent.name == group) for group in GROUPS}
    assert names == {
        "model": ["gdn-1.3b", "gdn-1.3b-fla", "gdn-340m", "gdn-mini", "gdn-tiny"],
        "drafter": ["aligned", "ngram", "oracle"],
        "topology": ["auto", "chain", "confidence", "explicit", "kary"],
        "engine": ["fla-generate", "fla-graph", "specla"],
        "workload": ["dataset", "gsm8k", "heldout", "human-eval", "spec-bench"],
        "measure": ["quick", "standard"],
    }
    for group, dial in (("drafter", strategies.DRAFTER), ("topology", strategies.TOPOLOGY)):
        assert {*names[group]} == {*dial} - {"none", "root"}


def parameters(name: str) -> float:
    """Weights of a model's projections, MLPs and embeddings, from its option alone."""
    m: dict[str, Any] = yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text())
    key, value = m["num_heads"] * m["head_dim"], m["num_v_heads"] * int(m["head_dim"] * m["expand_v"])
    layer = m["hidden_size"] * (2 * key + 3 * value + 2 * m["num_v_heads"] + 3 * m["intermediate_size"])
    embeddings = m["vocab_size"] * m["hidden_size"] * (1 if m["tie_word_embeddings"] else 2)
    return float(layer * m["num_hidden_layers"] + embeddings)


def test_the_models_have_their_published_sizes() -> None:
    assert parameters("gdn-1.3b") == pytest.approx(1_466_343_808, rel=1e-3)
    assert parameters("gdn-1.3b-fla") == pytest.approx(1.387e9, rel=1e-3)
    assert parameters("gdn-340m") == pytest.approx(400e6, rel=1e-2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["topology.length=0"], "topology.length=0: a tree needs at least one level of drafts"),
        (["topology.length=128"], "topology.length=128: give at most 127"),
        (["topology.length=abc"], "topology.length=abc: give a whole number or null"),
        (["topology.length=2.5"], "topology.length=2.5: give a whole number or null"),
        (["topology.length=null"], "topology.length=null: topology=chain needs it"),
        (["topology=kary", "topology.nodes=1"], "topology.nodes=1: a tree has its root and at least one draft"),
        (["topology=kary", "topology.nodes=129"], "topology.nodes=129: give at most 128"),
        (["topology=kary", "topology.branching=0"], "topology.branching=0: a node has at least one child"),
        (["topology=explicit"], "topology.parents=null: topology=explicit needs them"),
        (["topology=explicit", "topology.parents=[-1]"], "topology.parents=[-1]: a tree needs at least one level"),
        (["topology=explicit", "topology.parents=[-1,2]"], "topology.parents: node 1 has parent 2"),
        (["topology=explicit", "topology.parents=3"], "topology.parents=3: give a list, as in [a,b], or null"),
        (["sampling.temperature=-1"], "sampling.temperature=-1: 0 is greedy"),
        (["sampling.temperature=1e-45"], "sampling.temperature=1e-45: give 0, which is greedy, or 0.001 to 1000"),
        (["sampling.temperature=inf"], "sampling.temperature=inf: give at most 1000"),
        (["seed=99999999999999999999999"], "seed=99999999999999999999999: give at most 9007199254740992"),
        *(
            ([*words, f"{key}=99999999999999999999"], f"{key}=99999999999999999999: give at most 2147483647")
            for key, words in (
                ("workload.batch", ()),
                ("workload.prompts", ()),
                ("workload.max_new_tokens", ()),
                ("workload.prompt_tokens", ()),
                ("measure.repeats", ()),
                ("measure.warmup", ()),
                ("measure.calibration", ("topology=auto",)),
                ("drafter.max_ngram", ()),
                ("engine.ring", ("engine.recover=factors_lazy", "engine.verify=tree")),
            )
        ),
        (["topology=confidence", "drafter=aligned", "topology.margin=inf"], "topology.margin=inf: give at most 214"),
        (["sampling.temperature=1", "sampling.top_p=0"], "sampling.top_p=0: give a share"),
        (["sampling.temperature=1", "sampling.top_p=1.5"], "sampling.top_p=1.5: give at most 1"),
        (["drafter=oracle", "drafter.alpha=1.5"], "drafter.alpha=1.5: a share accepted is from 0 to 1"),
        (["drafter=oracle", "drafter.alpha=[[0.7,0.5]]"], "drafter.alpha=[[0.7,0.5]]: the shares of one depth"),
        (["drafter=oracle", "drafter.alpha=foo"], "drafter.alpha=foo: give a share"),
        (["drafter=oracle", "drafter.alpha=[]"], "drafter.alpha=[]: give a share"),
        (["drafter=oracle", "drafter.alpha=null"], "drafter.alpha=null: drafter=oracle needs drafter.alpha or"),
        (["drafter.min_ngram=9"], "drafter.min_ngram=9: is over drafter.max_ngram=4"),
        (["engine.verify=treee"], "engine.verify=treee: no such name; did you mean 'tree'?"),
        (["engine.verify=null"], "engine.verify=null: engine=specla needs it"),
        (["device=gpu"], "device=gpu: no such name"),
        (["dtype=fp16"], "dtype=fp16: no such name (auto, float32, float16, bfloat16)"),
        (["threads=0"], "threads=0: give 1 or more"),
        (["seed=-1"], "seed=-1: give 0 or more"),
        (["seed=true"], "seed=True: give a whole number"),
        (["engine.adaptive=maybe"], "engine.adaptive=maybe: give true or false or null"),
        (["measure.repeats=0"], "measure.repeats=0: give 1 or more"),
        (["workload.batch=0"], "workload.batch=0: give 1 or more"),
        (["workload=spec-bench"], "workload.path=null: spec-bench is not bundled; give workload.path=FILE"),
        (["workload=dataset"], "workload.path=null, workload.dataset=null: give one of them"),
        (["model=gdn-1.3b"], "model.path=null: model=gdn-1.3b has no bundled weights"),
        (["model.num_v_heads=3"], "model.num_v_heads=3: give a multiple of model.num_heads=4"),
        (["model.expand_v=0.3"], "model.expand_v=0.3: times model.head_dim=64 it is no whole number"),
        (["model.hidden_size=0"], "model.hidden_size=0: give 1 or more"),
        (["baseline.module=mine"], "baseline.module=mine, baseline.function=null: a baseline is a function"),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(words: list[str], message: str) -> None:
    with pytest.raises(SpeclaError) as caught:
        plan("bench e2e", words)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_build_tree() -> None:
    def tree_of(**values: Any) -> tuple[str, int, int]:
        tree = build_tree(TopologySettings(**values))
        return tree.name, tree.nodes, tree.depth

    assert tree_of(name="root") == ("root", 1, 0)
    assert tree_of(name="chain", length=4) == ("chain-l4", 5, 4)
    assert tree_of(name="kary", branching=2, nodes=16) == ("kary-b2-n16", 16, 4)
    assert tree_of(name="kary", branching=2, nodes=16, length=2) == ("kary-b2-n7", 7, 2)
    assert tree_of(name="explicit", parents=(-1, 0, 0, 1))[1:] == (4, 2)
    assert tree_of(name="confidence", branching=4, nodes=16, margin=3.0) == ("confidence-b4-m3-n16-l15", 16, 15)
    assert tree_of(name="auto", nodes=16) == ("auto-n16", 16, 15)
    with pytest.raises(SpeclaError, match="topology=kary"):
        build_tree(TopologySettings(name="kary", branching=2))


def test_settings_are_values() -> None:
    settings = put(
        Settings(),
        {
            "drafter": DrafterSettings(name="oracle", alpha=[[1, 0.0], [0.5, 0.25]]),
            "topology.parents": [-1, 0],
            "seed": 3,
        },
    )
    assert settings.drafter.alpha == ((1.0, 0.0), (0.5, 0.25))
    assert settings.topology.parents == (-1, 0)
    assert WorkloadSettings(categories=("code",)) == dataclasses.replace(WorkloadSettings(), categories=("code",))
    assert hash(settings) == hash(put(settings, {"seed": 3}))
    assert json.loads(json.dumps(to_plain(settings))) == to_plain(settings)
    assert yaml.safe_load(yaml.safe_dump(to_plain(settings))) == to_plain(settings)
    assert config_hash(settings) == config_hash(put(settings, {}))
    assert len({config_hash(settings), config_hash(settings, "x"), config_hash(put(settings, {"seed": 4}))}) == 3
    for key in dials():
        get(settings, key)


def test_numbers_of_the_acceptance_take_every_shape() -> None:
    assert cell_settings("drafter=oracle", "drafter.alpha=1").drafter.alpha == 1.0
    assert cell_settings("drafter=oracle", "drafter.alpha=[0.9,0.8]").drafter.alpha == (0.9, 0.8)
    assert cell_settings("drafter=oracle", "drafter.alpha=[[0.7,0.2],[0.6]]").drafter.alpha == ((0.7, 0.2), (0.6,))


def test_the_table_of_pairs() -> None:
    assert [*strategies.VERIFY] == [
        "ar", "sequential_replay", "naive_batched", "parent_pointer", "chain", "tree", "hybrid", "auto",
    ]  # fmt: skip
    for verify in strategies.VERIFY.values():
        assert {*verify.recovers} <= {*strategies.RECOVER}
        for recover in strategies.RECOVER:
            problem = strategies.pair_problem(verify.name, recover)
            assert (problem is None) == (recover in verify.recovers)
    assert strategies.pair_problem("parent_pointer", "factors") == (
        "parent_pointer stores a state per node: it recovers with snapshot, not with factors"
    )


def test_planning_imports_no_torch() -> None:
    code = "import sys, specla.bench.plan as p; p.plan('bench e2e', []); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
