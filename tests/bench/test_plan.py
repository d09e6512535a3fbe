"""From words to cells: the design's examples, sweeps, sections, dials that are not used, and every refusal."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from specla.bench.cells import COMMANDS, Cell, Plan
from specla.bench.confdir import conf_dir, own_conf_dir
from specla.bench.estimate import estimate
from specla.bench.normalise import END_TO_END, KERNEL_COMMANDS
from specla.bench.plan import composed_yaml, plan
from specla.bench.settings import to_plain
from specla.bench.strategies import VERIFY
from specla.errors import SpeclaError
from tests.factory import typed_again

EXPERIMENTS = sorted(path.stem for path in (conf_dir() / "experiment").glob("*.yaml"))


def e2e(words: str, config_dir: Path | None = None) -> Plan:
    return plan("bench e2e", words.split(), config_dir)


def methods(planned: Plan) -> list[Cell]:
    return [cell for cell in planned.cells if cell.method.verify != "ar"]


@pytest.mark.parametrize(
    ("words", "cells", "ar_cells"),
    [
        ("", 1, 1),
        ("model=gdn-1.3b device=cuda dtype=bfloat16 model.path=FOLDER", 1, 1),
        ("model=gdn-1.3b model.weights=random", 1, 1),
        ("topology=chain,kary topology.length=1,2,4", 6, 1),
        ("topology=kary topology.branching=2,4 topology.nodes=8,16,32", 6, 1),
        ("topology=explicit topology.parents=[-1,0,0,1]", 1, 1),
        ("drafter=ngram,oracle drafter.alpha=0.6,0.8", 3, 1),
        ("engine.verify=chain,tree,hybrid,auto engine.recover=factors,factors_deferred", 8, 1),
        ("engine.adaptive=true", 1, 1),
        ("topology=confidence topology.margin=3,6", 2, 1),
        ("workload=human-eval workload.batch=1,8,32 workload.max_new_tokens=128", 3, 3),
        ("sampling.temperature=0.8", 1, 1),
        ("measure=quick measure.repeats=7", 1, 1),
        ("topology=chain,kary topology.length=2,4 drafter=ngram,oracle drafter.alpha=0.6,0.8", 12, 1),
    ],
)
def test_what_users_type(words: str, cells: int, ar_cells: int) -> None:
    planned = e2e(words)
    assert (len(methods(planned)), len(planned.cells) - len(methods(planned))) == (cells, ar_cells)
    for cell in planned.cells:
        (ar,) = (other for other in planned.cells if other.config_hash == cell.ar_hash)
        assert ar.method.verify == "ar"
        assert ar.settings.workload == cell.settings.workload
        assert planned.cells.index(ar) <= planned.cells.index(cell)


def test_the_twelve_cells() -> None:
    words = "topology=chain,kary topology.length=2,4 drafter=ngram,oracle drafter.alpha=0.6,0.8"
    found = Counter((cell.method.topology, cell.settings.drafter.alpha) for cell in methods(e2e(words)))
    names = ("chain-l2", "chain-l4", "kary-b2-n7", "kary-b2-n16")
    assert found == Counter((name, alpha) for name in names for alpha in (None, 0.6, 0.8))


def test_a_cell_is_what_it_says() -> None:
    ar, cell = e2e("topology=kary topology.nodes=8 drafter=oracle engine.verify=tree dtype=float32").cells
    assert (cell.method.verify, cell.method.recover, cell.method.drafter) == ("tree", "factors", "oracle")
    assert (cell.method.topology, cell.method.engine) == ("kary-b2-n8", "specla")
    assert (cell.tree.nodes, cell.settings.topology.nodes, cell.settings.topology.length) == (8, 8, 3)
    assert cell.settings.topology.parents is None
    assert cell.settings.drafter.max_ngram is None
    assert cell.settings.engine.ring is None
    assert cell.settings.measure.sample_ms is None
    assert cell.settings.model.num_hidden_layers == 8
    assert (cell.command, cell.group, cell.status, cell.reason) == (END_TO_END, "main", "pending", "")
    assert cell.overrides == (
        "drafter=oracle", "topology=kary", "dtype=float32", "topology.nodes=8", "engine.verify=tree",
    )  # fmt: skip
    assert (ar.method.recover, ar.method.drafter, ar.method.topology) == ("in_place", "none", "root")
    assert ar.overrides == ("dtype=float32", "engine.verify=ar")
    assert (ar.tree.nodes, ar.settings.dtype, ar.ar_hash) == (1, "float32", ar.config_hash)


@pytest.mark.parametrize(
    "words",
    [
        "topology=chain,kary topology.length=2,9 drafter=ngram,oracle drafter.alpha=[0.6,0.5],0.8 seed=3",
        "topology=explicit topology.parents=[-1,0,0,1] engine.verify=tree engine.recover=replay_cached",
        "workload=spec-bench workload.path='/a b/c=d,e' workload.categories=[qa,true] sampling.temperature=0.8",
        "engine=specla,fla-generate model=gdn-1.3b model.weights=random workload.batch=3",
        "experiment=smoke",
        "experiment=ablate-recover model=gdn-1.3b",
    ],
)
def test_the_words_of_a_cell_give_that_cell(words: str) -> None:
    command = "ablate recover" if "ablate" in words else "bench e2e"
    texts = words.replace("/a b/", "/a&b/").split()
    planned = plan(command, [text.replace("/a&b/", "/a b/") for text in texts])
    for cell in planned.cells:
        again = plan(cell.command, typed_again(cell))
        assert again.cells[-1].config_hash == cell.config_hash
        assert len(again.cells) <= 2
        assert not any("not used" in note for note in again.notes)


@pytest.mark.parametrize(
    ("verify", "recover"),
    [
        ("ar", "in_place"),
        ("sequential_replay", "replay_tokens"),
        ("naive_batched", "replay_tokens"),
        ("parent_pointer", "snapshot"),
        ("chain", "factors"),
        ("tree", "factors"),
        ("hybrid", "factors"),
        ("auto", "factors"),
    ],
)
def test_recovery_is_the_natural_one(verify: str, recover: str) -> None:
    cell = e2e(f"engine.verify={verify}").cells[-1]
    assert (cell.method.recover, cell.status) == (recover, "pending")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("engine.verify=tree engine.recover=snapshot", "tree stores no state per node: it recovers with factors"),
        ("engine.verify=naive_batched engine.recover=factors", "naive_batched keeps neither factors nor"),
        ("engine.verify=chain topology=kary", "chain verifies chains only, and kary-b2-n16 branches"),
        ("engine.verify=auto engine.recover=snapshot", "auto may pick tree or hybrid"),
        ("topology=confidence", "topology=confidence is shaped by probabilities, and ngram has none"),
        ("drafter=aligned topology=confidence engine.verify=chain", "chain verifies chains only, and topology=conf"),
        ("drafter=aligned topology=confidence engine.verify=hybrid workload.batch=8", "hybrid verifies one tree for"),
        ("drafter=aligned topology=confidence engine.verify=hybrid device=cuda", "hybrid verifies one tree for"),
        ("device=cuda drafter=aligned topology=confidence topology.nodes=99", "topology.nodes=99: to shape such"),
        ("engine.recover=factors_lazy engine.ring=4", "engine.ring=4: a step of chain-l4 commits up to 5 tokens"),
    ],
)
def test_what_cannot_be_measured_is_a_cell_with_a_reason(words: str, reason: str) -> None:
    cell = e2e(words).cells[-1]
    assert (cell.status, cell.reason[: len(reason)]) == ("not_applicable", reason)


def test_a_gpu_times_operations() -> None:
    words = ["experiment=null", "model=gdn-1.3b", "device=cuda", "engine.verify=tree"]
    for command in KERNEL_COMMANDS:
        assert {cell.status for cell in plan(command, words).cells} == {"pending"}


def test_what_drafts_on_the_host_does_not_run_on_a_gpu() -> None:
    words = ["device=cuda", "experiment=null", "drafter=ngram,oracle"]
    found = {cell.method.drafter: (cell.status, cell.reason) for cell in plan("bench e2e", words).cells}
    assert found["none"] == found["oracle"] == ("pending", "")
    status, reason = found["ngram"]
    assert status == "not_applicable" and "it drafts on the host" in reason
    for drafter in ("oracle", "ngram"):
        (one,) = plan("generate", ["device=cuda", f"drafter={drafter}"]).cells
        assert one.status == "not_applicable" and "generate with device=cuda" in one.reason


def test_the_gpu_study_has_single_nodes_and_every_strategy() -> None:
    cells = plan("ablate verify", ["experiment=gpu-verify"]).cells
    assert {cell.settings.workload.batch for cell in cells if cell.tree.nodes == 1} == {1, 8, 32, 128}
    assert {cell.method.verify for cell in cells if cell.tree.nodes == 1} == {"ar"}
    assert {cell.tree.nodes for cell in cells if not cell.tree.is_chain} == {8, 9, 15, 16, 32, 64}
    assert {cell.method.verify for cell in cells} == set(VERIFY) and {cell.status for cell in cells} == {"pending"}
    took = [estimate(cell, "cuda", "bfloat16") for cell in cells]
    assert sum(one.seconds for one in took) < 240 and max(one.memory_bytes for one in took) < 100 << 30


def test_every_other_pair_is_planned() -> None:
    verifies = "sequential_replay,naive_batched,parent_pointer,chain,tree,hybrid,auto"
    recovers = "replay_tokens,replay_cached,snapshot,factors,factors_deferred,factors_lazy"
    planned = e2e(f"engine.verify={verifies} engine.recover={recovers} measure=quick")
    assert len(methods(planned)) == 42
    assert {cell.status for cell in planned.cells} == {"pending", "not_applicable"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("topology.lenght=3", "no key 'topology.lenght'; did you mean 'topology.length'?"),
        ("lenght=3", "no key 'lenght'; did you mean 'topology.length'?"),
        ("alpha=0.5", "no key 'alpha'; did you mean 'drafter.alpha'?"),
        ("topolgy=chain", "no key 'topolgy'; did you mean 'topology'?"),
        ("topology=karry", "no option 'karry' of topology; did you mean 'kary'? (auto, chain,"),
        ("topology=chain,karry", "no option 'karry' of topology; did you mean 'kary'?"),
        ("experiment=smok", "no option 'smok' of experiment; did you mean 'smoke'?"),
        (
            "+topology.length=3",
            "+topology.length=3: '+' adds a key, but every key is there already; write topology.length=3",
        ),
        ("++mine=3", "++mine=3: '+' adds a key"),
        ("~drafter", "~drafter: nothing can be left out"),
        ("~drafter=oracle", "~drafter=oracle: nothing can be left out"),
        ("seed=1 seed=2", "seed=2: 'seed' is given twice; keep one, or sweep as in seed=a,b"),
        ("topology=chain topology=kary", "topology=kary: 'topology' is given twice"),
        ("topology.length", "topology.length: give KEY=VALUE"),
        ("=3", "no key ''"),
        ("seed=1,,2", "seed=1,,2: not in Hydra's grammar"),
        ("topology.length=interval(1,3)", "topology.length=interval(1,3): an interval is no list of values"),
        ("topology.length=glob(*)", "topology.length=glob(*): glob matches the options of a group"),
        ("topology=glob(z*)", "topology=glob(z*): matches no option (auto, chain,"),
        ("topology=[chain,kary]", "topology=[chain,kary]: one option at a time"),
        ("topology=null", "no option 'null' of topology"),
        ("hydra/launcher=basic", "hydra/launcher=basic: specla runs its own cells"),
        ("topology@mine=chain", "topology@mine=chain: a group has one place; write topology=chain"),
        ("topology.name=kary", "topology.name=kary: the name comes with the option; write topology=kary"),
        ("sampling=0.5", "sampling=0.5: give sampling.temperature or sampling.top_p"),
        ("sections=3", "no key 'sections'"),
        ("seed=range(1,200) sampling.temperature=range(0,101)", "20099 combinations, over 20000"),
        ("seed=range(1,100000)", "seed=range(1,100000): 99999 combinations, over 20000"),
        ("model.path=${nope}", "model.path=${nope}: Interpolation key 'nope' not found"),
    ],
)
def test_refusals(words: str, message: str) -> None:
    with pytest.raises(SpeclaError) as caught:
        e2e(words)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_refusals_of_commands() -> None:
    with pytest.raises(SpeclaError, match=r"no command 'bench e2d'; did you mean 'bench e2e'\?"):
        plan("bench e2d", [])
    with pytest.raises(SpeclaError, match=r"experiment=smoke: bench paper runs its own \(paper-e2e"):
        plan("bench paper", ["experiment=smoke"])


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("drafter.alpha=0.5", "drafter.alpha=0.5: not used, since drafter=ngram does not use it"),
        ("topology.branching=2,3", "topology.branching=2,3: not used, since topology=chain does not use it"),
        ("sampling.top_p=0.9", "sampling.top_p=0.9: not used, since sampling.temperature=0 is greedy"),
        ("engine.verify=ar drafter=oracle", "drafter=oracle: not used, since engine.verify=ar drafts nothing"),
        ("model.weights=random model.path=x", "model.path=x: not used, since model.weights=random reads no"),
        ("engine.ring=8", "engine.ring=8: not used, since engine.recover=factors keeps no ring"),
        ("measure.accepted=2", "measure.accepted=2: not used, since bench e2e commits what was accepted"),
        ("topology=kary topology.length=9", "topology.length=9: 16 nodes of branching 2 reach 4 levels; taken as 4"),
        ("topology=kary topology.length=2", "topology.nodes=16: 2 levels of branching 2 hold 7 nodes; taken as 7"),
        ("workload.batch=3", "workload.prompts=8: no whole number of batches of 3; taken as 9"),
    ],
)
def test_nothing_is_dropped_in_silence(words: str, note: str) -> None:
    notes = e2e(words).notes
    assert notes[0].startswith(note)


def test_a_dial_that_one_choice_uses_needs_no_note() -> None:
    planned = e2e("drafter=ngram,oracle drafter.alpha=0.6,0.7")
    assert planned.notes == ("1 of 4 combinations repeat another in all that they use: each is measured once",)
    assert e2e("").notes == e2e("engine.verify=ar").notes == e2e("topology.length=2").notes == ()


def test_equal_trees_are_one_cell() -> None:
    planned = e2e("topology=kary topology.nodes=16 topology.length=4,5,9,null")
    assert len(methods(planned)) == 1
    assert len(methods(e2e("topology=kary topology.nodes=7,16,32 topology.length=2"))) == 1


def test_hydra_grammar() -> None:
    assert [cell.settings.seed for cell in methods(e2e("seed=range(1,7,2)"))] == [1, 3, 5]
    assert [cell.settings.seed for cell in methods(e2e("seed=choice(4,2)"))] == [4, 2]
    alphas = [cell.settings.drafter.alpha for cell in methods(e2e("drafter=oracle drafter.alpha=range(0.3,0.9,0.2)"))]
    assert alphas == pytest.approx([0.3, 0.5, 0.7])
    assert {cell.settings.model.name for cell in e2e("model=glob([gdn-m*,gdn-t*])").cells} == {"gdn-mini", "gdn-tiny"}


def test_a_missing_input_is_an_error_alone_and_a_reason_in_a_sweep() -> None:
    cells = methods(e2e("topology=glob(*,exclude=[auto,confidence]) workload=heldout,gsm8k"))
    assert len(cells) == 6
    reasons = {(cell.settings.topology.name, cell.settings.workload.name): cell.reason for cell in cells}
    assert reasons["chain", "heldout"] == ""
    assert reasons["explicit", "heldout"].startswith("topology.parents=null")
    assert reasons["chain", "gsm8k"] == "workload.path=null: gsm8k is not bundled; give workload.path=FILE"
    with pytest.raises(SpeclaError, match="gsm8k is not bundled"):
        e2e("workload=gsm8k topology=chain,kary")


@pytest.mark.parametrize("command", [command for command, parts in COMMANDS.items() if len(parts) == 1])
def test_every_command_plans_by_itself(command: str) -> None:
    planned = plan(command, [])
    assert planned.command == command
    assert any(cell.status == "pending" for cell in planned.cells)
    kinds = {cell.command for cell in planned.cells}
    assert len(kinds) == 1
    assert kinds <= {END_TO_END, *KERNEL_COMMANDS, "generate"}
    has_ar = any(cell.method.verify == "ar" for cell in planned.cells)
    assert has_ar == (kinds == {END_TO_END})
    assert all((cell.ar_hash is None) == (kinds != {END_TO_END}) for cell in planned.cells)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_plans(experiment: str) -> None:
    owners = [command for command, parts in COMMANDS.items() if experiment in {name for _, name in parts}]
    # A study of single operations that no command starts from says so in its name.
    usual = f"ablate {experiment.removeprefix('gpu-')}" if experiment.startswith("gpu-") else "bench e2e"
    planned = plan(owners[-1] if owners else usual, [f"experiment={experiment}"])
    assert any(cell.status == "pending" for cell in planned.cells)
    assert all("not used" not in note for note in planned.notes)


def test_kernels_are_timed_on_random_inputs() -> None:
    planned = plan("ablate verify", ["model=gdn-1.3b", "workload=human-eval", "workload.batch=1,8", "drafter=oracle"])
    cell = planned.cells[-1]
    assert (cell.settings.drafter.name, cell.settings.workload.name, cell.group) == ("none", "none", "verify")
    assert (cell.settings.model.weights, cell.settings.measure.sample_ms) == ("random", 5.0)
    assert {cell.settings.workload.batch for cell in planned.cells} == {1, 8}
    assert planned.notes[0].startswith("workload=human-eval: not used, since ablate verify times kernels")
    assert planned.notes[1].startswith("drafter=oracle: not used")
    assert typed_again(cell)[:3] == ["experiment=null", "model=gdn-1.3b", "topology=kary"]
    fla = plan("ablate verify", ["experiment=null", "engine=fla-graph"]).cells[0]
    assert fla.status == "not_applicable"
    deep = plan("ablate recover", ["experiment=null", "topology.length=2", "measure.accepted=2,3"]).cells
    assert [cell.status for cell in deep] == ["pending", "not_applicable"]


def test_the_bench_experiment() -> None:
    planned = plan("bench e2e", ["experiment=bench"])
    by_group = Counter(cell.group for cell in methods(planned))
    assert set(by_group) == {
        "chain", "tree", "code-chain", "code-tree", "ngram", "ngram-code", "aligned", "aligned-tree", "aligned-code",
        "acceptance",
    }  # fmt: skip
    assert len(planned.cells) <= 45
    assert {cell.settings.model.name for cell in planned.cells} == {"gdn-mini"}
    assert {cell.settings.sampling.temperature for cell in planned.cells} == {0.0}
    assert {cell.settings.workload.name for cell in planned.cells} == {"heldout", "human-eval"}
    assert {cell.method.verify for cell in planned.cells} == {
        "ar", "sequential_replay", "naive_batched", "parent_pointer", "chain", "tree", "hybrid", "auto",
    }  # fmt: skip
    shaped = "confidence-b4-m1-n16-l8"
    assert {cell.method.topology for cell in planned.cells} == {"root", "chain-l4", "kary-b2-n8", "kary-b2-n16", shaped}
    assert all(cell.status == "pending" for cell in planned.cells)


def test_the_words_of_a_user_win_over_an_experiment() -> None:
    planned = plan("bench e2e", ["experiment=bench", "engine.verify=auto", "drafter=ngram", "workload=heldout"])
    assert {cell.method.verify for cell in methods(planned)} == {"auto"}
    assert {cell.method.drafter for cell in methods(planned)} == {"ngram"}
    # With five prompts on a chain, two trees and a shaped one; with the code sections' three on one of each.
    counted = Counter(cell.settings.workload.prompts for cell in methods(planned))
    assert counted == {5: 4, 3: 3}
    assert len(methods(plan("ablate length", ["topology.length=3", "drafter.alpha=0.5"]))) == 1


def test_bench_paper_runs_every_claim() -> None:
    planned = plan("bench paper", [])
    assert {cell.command for cell in planned.cells} == {END_TO_END, *KERNEL_COMMANDS}
    groups = {"maths", "mix", "code", "heldout", "verify", "recover", "defer", "paper-accept", "paper-perfect"}
    assert {cell.group for cell in planned.cells} == groups
    assert len({cell.config_hash for cell in planned.cells}) == len(planned.cells)
    only = plan("bench paper", ["experiment=paper-defer", "workload.batch=1"])
    assert {cell.command for cell in only.cells} == {"ablate defer"}


def test_bench_all_is_decoding_and_every_operation_in_one_run() -> None:
    planned = plan("bench all", [])
    assert [*dict.fromkeys(cell.command for cell in planned.cells)] == [END_TO_END, *KERNEL_COMMANDS]
    assert {cell.status for cell in planned.cells} == {"pending"}
    decodes = {cell.config_hash for cell in planned.cells if cell.command == END_TO_END}
    assert decodes == {cell.config_hash for cell in e2e("experiment=bench").cells}
    assert {cell.settings.threads for cell in planned.cells} == {1}
    operations = [cell for cell in planned.cells if cell.command != END_TO_END]
    assert {cell.group for cell in operations} == {"verify", "recover", "defer"}
    assert all(cell.settings.measure.repeats >= 5 for cell in operations)


def test_the_same_words_give_the_same_hashes() -> None:
    first, second = (e2e(words) for words in ("seed=1 topology=kary", "topology=kary seed=1 topology.nodes=16"))
    assert [cell.config_hash for cell in first.cells] == [cell.config_hash for cell in second.cells]
    assert first.config_hash == second.config_hash != e2e("seed=2 topology=kary").config_hash


def test_composed_yaml() -> None:
    shown = yaml.safe_load(composed_yaml("bench e2e", ["topology=kary", "drafter=oracle"]))
    assert shown == to_plain(methods(e2e("topology=kary drafter=oracle"))[0].settings)
    assert shown["topology"]["nodes"] == 16


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_users_own_folder(tmp_path: Path) -> None:
    write(tmp_path, "topology/bushy.yaml", "name: kary\nbranching: 3\nnodes: 13\n")
    write(tmp_path, "measure/quick.yaml", "name: quick\nrepeats: 11\n")
    write(
        tmp_path,
        "experiment/mine.yaml",
        "# @package _global_\nhydra: {sweeper: {params: {seed: '1,2'}}}\n"
        "sections:\n  one: [topology=bushy]\n  two: [topology=chain, 'topology.length=2,3', measure=quick]\n",
    )
    planned = e2e("experiment=mine", tmp_path)
    assert Counter(cell.group for cell in methods(planned)) == {"one": 2, "two": 4}
    assert {cell.settings.measure.repeats for cell in methods(planned) if cell.group == "two"} == {11}
    assert planned.notes[0] == "--config-dir: measure/quick.yaml replaces the shipped one"
    bushy = e2e("topology=bushy", tmp_path).cells[-1]
    assert (bushy.method.topology, bushy.overrides) == ("kary-b3-n13", ("topology=bushy",))
    with pytest.raises(SpeclaError, match="no option 'bushy' of topology"):
        e2e("topology=bushy")


@pytest.mark.parametrize(
    ("name", "text", "words", "message"),
    [
        ("topology/odd.yaml", "name: chain\nlenght: 3\n", "topology=odd", "no key 'topology.lenght'; did you mean"),
        (
            "topology/odd.yaml",
            "name: chian\n",
            "topology=odd",
            "topology.name=chian: no such name; did you mean 'chain'",
        ),
        ("topology/odd.yaml", "name: [", "topology=odd", "topology=odd: while parsing"),
        ("topology/odd.yaml", "name: root\n", "topology=odd", "topology.name=root: only engine.verify=ar decodes"),
        (
            "experiment/odd.yaml",
            "# @package _global_\nsections: {a: [topolgy=chain]}\n",
            "experiment=odd",
            "odd.sections.a: no key 'topolgy'",
        ),
        (
            "experiment/odd.yaml",
            "# @package _global_\nsections: {a: [experiment=smoke]}\n",
            "experiment=odd",
            "odd.sections.a: experiment=smoke: an experiment cannot choose another one",
        ),
        (
            "experiment/odd.yaml",
            "# @package _global_\nhydra: {sweeper: {params: {sed: '1,2'}}}\n",
            "experiment=odd",
            "odd.sweeper.params: no key 'sed'",
        ),
    ],
)
def test_what_is_wrong_in_a_users_folder(tmp_path: Path, name: str, text: str, words: str, message: str) -> None:
    write(tmp_path, name, text)
    with pytest.raises(SpeclaError) as caught:
        e2e(words, tmp_path)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(SpeclaError, match="--config-dir=/no/such: no such folder"):
        own_conf_dir("/no/such")
