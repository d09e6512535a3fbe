"""The command line as a user meets it: output, exit codes, and nothing half-written after a mistake."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest

import specla
from specla.bench.record import Status
from specla.models.checkpoint import resolve_folder
from tests.cli.conftest import Run
from tests.factory import ar_record, decode_record, unmeasured, write_run

ROOT = Path(specla.__file__).parents[1]


def test_dry_run_lists_twelve_cells_and_runs_nothing(run: Run, tmp_path: Path) -> None:
    words = "topology=chain,kary topology.length=2,4 drafter=ngram,oracle drafter.alpha=0.6,0.8"
    code, out, _ = run(f"specla bench e2e {words} --dry-run --json")
    assert code == 0
    assert "12 cells and AR (1)" in out
    cells = json.loads(out.splitlines()[-1])["cells"]
    assert [cell["status"] for cell in cells] == ["pending"] * 13
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("workload.prompts=1000", "heldout holds 120; give at most that"),
        ("workload.categories=[poems]", "no 'poems' in heldout; give some of arithmetic"),
        ("topology=auto measure.calibration=1000", "leave 100 of the 120 prompts"),
        (
            "topology=auto workload.batch=3 workload.categories=[code] measure.calibration=25",
            "calibration=25 (27 in whole batches): those that are measured leave 3 of the 24 prompts of "
            "workload=heldout, categories code",
        ),
    ],
)
def test_a_dry_run_counts_the_bundled_prompts(words: str, told: str, run: Run, tmp_path: Path) -> None:
    code, _, err = run(
        f"specla bench e2e workload.prompts=20 {words} --dry-run".replace("prompts=20 workload.prompts", "prompts")
    )
    assert code == 2 and told in err and list(tmp_path.iterdir()) == []


def test_a_cell_that_cannot_run_says_why(run: Run) -> None:
    words = "model=gdn-tiny model.weights=random workload.prompts=1 workload.max_new_tokens=4 measure=quick threads=1"
    code, out, _ = run(f"specla bench e2e {words} engine.recover=factors_lazy engine.ring=2")
    assert code == 0 and "not applicable: " in out and "engine.ring=2" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("topology.lenght=4", "did you mean 'topology.length'"),
        ("topolgy=chain", "did you mean 'topology'"),
        ("topology=chian", "did you mean 'chain'"),
        ("topology.length=0", "topology.length=0: a tree needs at least one level of drafts"),
        ("topology.length=128", "127"),
        ("topology=kary topology.nodes=129", "128"),
        ("drafter=oracle drafter.alpha=1.01", "from 0 to 1"),
        ("drafter=oracle drafter.alpha=-0.1", "from 0 to 1"),
        ("+seed=1", "'+'"),
        ("~topology", "left out"),
        ("seed=1 seed=2", "given twice"),
        ("model.path=/nowhere/at/all", "no such folder"),
        ("drafter=aligned drafter.path=nowhere", "drafter.path=nowhere: no such folder"),
        ("drafter=aligned drafter.path=null", "drafter.path=null"),
        ("drafter=aligned model=gdn-tiny", "drafts from 8192 tokens, the target has 256"),
        ("drafter=aligned drafter.vocabulary=9000", "drafter.vocabulary=9000: the target has 8192 tokens"),
        ("topology=confidence topology.margin=0", "topology.margin=0: give a number over 0"),
        ("workload=dataset workload.path=missing.jsonl", "no such file"),
        ("workload=dataset workload.path=empty.jsonl", "empty"),
        ("workload=dataset workload.path=latin.txt", "not UTF-8"),
        ("workload=dataset workload.path=broken.jsonl", "line 1: not JSON"),
        ("workload.prompts=1000", "holds 120"),
        ("workload.categories=[poems]", "no 'poems'"),
        ("topology=auto workload.prompts=120", "measured leave 0 of the 120 prompts"),
        ("topology=auto workload.max_new_tokens=8", "tokens of 20 prompts are too few for topology=auto"),
        ("drafter=oracle drafter.profile=missing.json", "no such file"),
        ("drafter=oracle drafter.profile=broken.jsonl", "damaged, not JSON"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(words: str, told: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    (tmp_path / "broken.jsonl").write_text('{"prompt": "a"\n')
    code, out, err = run(f"specla bench e2e {words}")
    lines = [line for line in err.splitlines() if line.startswith("specla: ")]
    assert code == 2
    assert len(lines) == 1 and told in lines[0], err
    assert "Traceback" not in err and out == ""
    assert not (tmp_path / "runs").exists()


def test_damaged_checkpoints(run: Run, tmp_path: Path) -> None:
    whole = resolve_folder("asset:gdn-mini")
    cut = shutil.copytree(whole, tmp_path / "cut")
    shard = cut / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:100_000])
    small = shutil.copytree(whole, tmp_path / "small")
    raw = json.loads((small / "config.json").read_text())
    (small / "config.json").write_text(json.dumps({**raw, "vocab_size": 4096}))
    for folder, told in ((cut, "cut short"), (small, "config.json asks for (4096, 256)")):
        code, _, err = run(f"specla bench e2e model.path={folder}")
        assert code == 2 and told in err and err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_file_where_the_runs_should_be(run: Run, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    code, _, err = run("specla bench e2e experiment=smoke")
    assert code == 2 and "cannot be written" in err


def test_a_full_disk_is_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        if any(tmp_path.glob("runs/*/env.json")):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = run("specla bench e2e experiment=smoke")
    assert code == 4
    told = "No space left on device; free space and run the same command again"
    assert re.search(rf"^specla: runs/bench-e2e-smoke-\w+/\S+: {told}$", err, re.MULTILINE), err


@pytest.mark.parametrize("words", ["bench e2e experiment=smoke --out ''", "report --out ''", "report --runs=''"])
def test_an_empty_folder_is_refused(words: str, run: Run, tmp_path: Path) -> None:
    code, out, err = run(f"specla {words}")
    assert (code, out) == (2, "") and re.fullmatch(r"specla: --\w+='': name a folder, .*\n", err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["''", "../up", "a/b", "/abs", "..", ".", ".hidden", "'a b'", "$'a\\n'", "'a\nb'", "é"]
)
def test_a_reports_name_is_a_name(name: str, run: Run, tmp_path: Path) -> None:
    write_run(tmp_path / "runs", [ar_record()])
    code, out, err = run(f"specla report --name {name}")
    assert (code, out) == (2, "") and re.fullmatch(r"specla: --name=.*: use up to 200 letters, digits, .*\n", err)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.parametrize(
    "words",
    [
        f"report --name {'x' * 300}",
        f"report --out {'x' * 300}",
        f"report --runs {'x' * 300}",
        f"report {'x' * 300}",
        f"compare {'x' * 300} {'x' * 300}",
        f"bench e2e experiment=smoke --out {'x' * 300}",
        f"bench e2e --config-dir {'x' * 300}",
        "bench e2e --config-dir ''",
        "report loop",
        "compare loop loop",
        "report --runs loop",
    ],
)
def test_a_path_that_cannot_be_is_one_line(words: str, run: Run, tmp_path: Path) -> None:
    write_run(tmp_path / "runs", [ar_record()])
    (tmp_path / "loop").symlink_to("loop")
    code, out, err = run(f"specla {words}")
    assert code == 2 and out == "" and err.splitlines()[-1].startswith("specla: ") and "Traceback" not in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "runs"]


def test_help_shows_the_words_once(run: Run) -> None:
    assert "[OPTIONS] [OVERRIDE]..." in run("specla bench e2e --help")[1]


def test_a_report_of_a_run_with_nothing_measured_is_written_and_exits_with_0(run: Run, tmp_path: Path) -> None:
    pending = decode_record(**unmeasured(decode_record(), Status.PENDING))
    folder = write_run(tmp_path, [pending])
    code, out, _ = run(f"specla report {folder}")
    assert code == 0 and "0 of 1 cells were measured" in (tmp_path / out.strip()).read_text()
    code, out, _ = run("specla report --help")
    assert code == 0 and "Exits with 0 where a report was written, whatever its runs hold" in " ".join(out.split())


def test_run_resume_and_report(run: Run, tmp_path: Path) -> None:
    """One run at five repeats, the same again from its records, and the report of it."""
    words = "specla bench e2e experiment=smoke measure.repeats=5 --json"
    code, out, _ = run(words)
    document = json.loads(out.splitlines()[-1])
    assert code == 0 and document["status"] == "passed"
    assert all(cell["lossless"] == "exact" for cell in document["cells"])
    folder = next((tmp_path / "runs").iterdir())
    assert {file.name for file in folder.iterdir()} == {
        "config.yaml",
        "env.json",
        "records.jsonl",
        "summary.json",
        "log.txt",
        "dispatch.json",
    }
    before = (folder / "records.jsonl").read_bytes()
    code, out, err = run(words)
    assert code == 0 and "7 of 7 cells were measured earlier" in err
    assert (folder / "records.jsonl").read_bytes() == before
    assert json.loads(out.splitlines()[-1])["cells"] == document["cells"]
    code, out, _ = run("specla report")
    report = tmp_path / out.strip()
    assert code == 0 and report.name == "report.md"
    assert {"summary.json", "speedup.png", "speedup.csv", "records"} <= {file.name for file in report.parent.iterdir()}
    kept = report.parent / "records" / folder.name
    assert (kept / "dispatch.json").read_bytes() == (folder / "dispatch.json").read_bytes()


def test_a_gpu_that_is_not_there_is_a_users_mistake(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = run("specla ablate verify experiment=gpu-verify")
    assert code == 2 and "finds no CUDA device here" in err and len(err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()
    code, out, _ = run("specla ablate verify experiment=gpu-verify --dry-run --json")
    assert code == 0 and {cell["device"] for cell in json.loads(out.splitlines()[-1])["cells"]} == {"cuda"}


def test_too_few_repeats_are_inconclusive(run: Run) -> None:
    assert run("specla bench e2e experiment=smoke")[0] == 3


def test_generate_streams_the_text_of_ar(run: Run) -> None:
    rest = "workload.max_new_tokens=24"
    code, plain, _ = run(f"specla generate 'def add(a, b):' engine.verify=ar {rest}")
    assert code == 0 and len(plain.strip()) > 10
    for words in ("drafter=ngram topology.length=3", "drafter=ngram topology=kary engine.verify=hybrid"):
        code, drafted, err = run(f"specla generate 'def add(a, b):' {words} {rest}")
        assert code == 0 and drafted == plain and "tau" in err


@pytest.mark.parametrize(
    "words", ["''", "'   '", "hello topology.length=1,2", "hello engine.verify=chain topology=kary"]
)
def test_generate_refuses(words: str, run: Run) -> None:
    code, out, err = run(f"specla generate {words}")
    assert code == 2 and out == "" and err.count("\n") == 1


@pytest.mark.parametrize(
    "words", ["", " drafter=ngram", " drafter=oracle", " engine.verify=ar", " topology=confidence"]
)
@pytest.mark.parametrize("gpu", [True, False])
def test_generate_blames_the_gpu_that_it_does_not_use(
    gpu: bool, words: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    code, out, err = run(f"specla generate hello device=cuda{words}")
    assert code == 2 and out == "" and err.count("\n") == 1
    assert err.startswith("specla: device=cuda: ") and "give device=cpu" in err
    assert ("finds no CUDA device here" in err) is not gpu


def test_list_and_explain(run: Run) -> None:
    code, out, _ = run("specla list")
    assert code == 0 and "topology: auto, chain, confidence, explicit, kary" in out
    code, out, _ = run("specla list engine.verify")
    assert code == 0 and out.splitlines()[0].startswith("ar: zero drafts")
    assert run("specla list nothing")[0] == 2
    assert "4.3" in run("specla explain hybrid")[1]
    assert run("specla explain taau")[0] == 2


TINY = "model=gdn-tiny measure=quick threads=1 workload.prompts=1 workload.max_new_tokens=8 measure.calibration=1"


def test_explain_topology_for_overrides_and_for_the_last_run(run: Run) -> None:
    words = f"drafter=oracle drafter.alpha=[[0.6,0.3]] topology.nodes=4 {TINY}"
    code, out, err = run(f"specla explain topology {words}")
    assert code == 0, err
    assert out.startswith("topology=auto, at most 4 nodes\n") and "tok/s" in out and "chosen" in out
    assert run("specla explain topology")[0] == 2
    code, out, err = run(f"specla bench e2e topology=auto {words} --dry-run")
    assert code == 0 and "<= 4" in out
    assert run(f"specla bench e2e topology=auto {words}")[0] == 0
    code, out, _ = run("specla explain topology")
    assert code == 0 and "oracle ((" not in out and "drafter oracle [[0.6,0.3]]" in out
    assert max(map(len, out.splitlines())) <= 80
    folder = next(Path("runs").iterdir())
    assert run(f"specla explain topology {folder}")[1] == out
    for wrong in ("topology nowhere", f"topology {folder} more", "topology topology=chain", "hybrid tree", "profile"):
        code, _, err = run(f"specla explain {wrong}")
        assert code == 2 and err.splitlines()[-1].startswith("specla: "), wrong


def test_a_profile_from_a_run_drives_the_oracle(run: Run) -> None:
    words = "workload.categories=[repeats] workload.prompts=2 workload.max_new_tokens=48 measure.repeats=1 threads=1"
    assert run(f"specla bench e2e drafter=ngram topology=kary topology.nodes=7 {words}")[0] == 3
    code, out, err = run("specla explain profile")
    assert code == 0, err
    found = json.loads(out)
    assert found["drafter"] == "ngram" and found["topology"] == "kary-b2-n7" and len(found["alpha"][0]) == 2
    Path("pair.json").write_text(out)
    code, out, err = run(f"specla bench e2e drafter=oracle drafter.profile=pair.json {TINY} --json")
    assert code == 0, err
    cell = json.loads(out.splitlines()[-1])["cells"][-1]
    assert cell["synthetic"] and cell["profile"] == "pair" and cell["alpha_asked"] == found["alpha"]
    assert "oracle pair ~" in out


def test_generate_with_a_chosen_tree(run: Run) -> None:
    code, out, _ = run(f"specla generate 'a text' topology=auto topology.nodes=3 drafter=oracle {TINY} --json")
    assert code == 0 and json.loads(out.splitlines()[-1])["why"].startswith("topology=auto: ")


def test_train_on_own_text(run: Run, tmp_path: Path) -> None:
    """A corpus from a folder, a few steps, a kill by the clock, and the rest of the steps."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for i in range(60):
        (texts / f"{i}.txt").write_text(f"Chapter {i}. " + "The quick brown fox jumps over the lazy dog again. " * 12)
    sources = f"sources='[{{path: {texts}, name: mine, licence: MIT, category: prose}}]'"
    code, out, err = run(f"specla train corpus {sources} out=corpus vocab_size=300 heldout_share=0.2")
    assert code == 0, err
    assert "tokens to train on" in out
    train = "specla train target model=gdn-tiny model.vocab_size=300 corpus=corpus out=model steps=6 batch_size=2 "
    train += "sequence_length=32 warmup_steps=2 device=cpu"
    code, out, err = run(f"{train} minutes=0")
    assert code == 0 and "stopped at step 0 of 6" in out, err
    code, out, err = run(train)
    assert code == 0 and "finished" in out, err
    assert (tmp_path / "model" / "model" / "model.safetensors").is_file()
    code, _, err = run(f"{train} seed=1")
    assert code == 2 and "another seed" in err
