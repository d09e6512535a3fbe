"""The corpus: what is read and dropped, the tokenizer, the split, the files, the prompts, and every refusal."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from specla.errors import SpeclaError
from specla.train import corpus as corpus_module
from specla.train.bpe import END_OF_TEXT_ID, load_tokenizer, train_tokenizer
from specla.train.corpus import CorpusOptions, TextSource, build_corpus, heldout_documents
from specla.train.html_text import page_text
from specla.train.prompts import PROMPT_CATEGORIES, iterate_prompts, write_prompts
from specla.train.sources import cut_pieces, read_source

WORDS = ["river", "lamp", "stone", "garden", "winter", "letter", "harbour", "morning", "window", "candle", "market"]
PAGE = """<!DOCTYPE html><html><head><title>drop title</title><style>drop {}</style></head><body>
<div class="related" role="navigation"><ul><li><a href="x">drop index</a></li></ul></div>
<div class="body" role="main"><h1>Reader<a class="headerlink" href="#r">¶</a></h1>
<p>A reader takes lines,
one &amp; all, from <code><span>open()</span></code>.</p>
<div class="highlight"><pre><span></span><span class="k">if</span> a &lt; b:
    <span class="k">return</span> a

    b = 1
</pre></div>
<ul><li><p>first item</p></li><li>second item</li></ul>
<table><tr><th>Name</th><th>Use</th></tr><tr><td>x</td><td><p>a size</p></td></tr></table>
<dl><dt>read(n)<a class="headerlink" href="#s">¶</a></dt><dd><p>Read n lines.</p></dd></dl>
</div><div class="sphinxsidebar"><p>drop sidebar</p></div><script>drop()</script></body></html>"""


def sentences(draw: random.Random, count: int) -> str:
    """Paragraphs of made-up sentences."""
    made = []
    for _ in range(count):
        parts = [" ".join(draw.choices(WORDS, k=draw.randint(4, 9))) for _ in range(draw.randint(2, 5))]
        made.append(" ".join(f"The {part}." for part in parts))
    return "\n\n".join(made) + "\n"


def function(draw: random.Random) -> str:
    """One small function with a docstring."""
    name, first, second = draw.sample(WORDS, 3)
    number = draw.randint(1, 999)
    return (
        f'def {name}_{number}({first}, {second}):\n    """Join {first} and {second} with the {name}."""\n'
        f"    {first} = {first} + {number}\n    for {name} in {second}:\n        {first} = {first} * {name}\n"
        f"    {second}.append({first})\n    return {first}, {second}\n\n\n"
    )


def make_sources(folder: Path) -> list[TextSource]:
    """A folder of each category with a few dozen made-up files."""
    draw = random.Random(1)
    for category in ("prose", "documentation", "code"):
        (folder / category).mkdir()
    for i in range(24):
        (folder / "prose" / f"{i}.txt").write_text(sentences(draw, 8))
        body = "".join(f"<p>{part}</p>" for part in sentences(draw, 8).split("\n\n"))
        (folder / "documentation" / f"{i}.html").write_text(f"<html><body><h1>Page {i}</h1>{body}</body></html>")
        (folder / "code" / f"{i}.py").write_text("import os\n\n\n" + "".join(function(draw) for _ in range(6)))
    (folder / "prose" / "copy.txt").write_text((folder / "prose" / "0.txt").read_text())
    return [
        TextSource("tales", folder / "prose", "MIT", "prose", "1"),
        TextSource("manual", folder / "documentation", "MIT", "documentation", "2"),
        TextSource("library", folder / "code", "MIT", "code", "3"),
    ]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> CorpusOptions:
    """Options over made-up sources; their corpus is built once for the module."""
    folder = tmp_path_factory.mktemp("texts")
    made = CorpusOptions(make_sources(folder), folder / "corpus", vocab_size=600, heldout_share=0.25, seed=3)
    assert build_corpus(made).built
    return made


def decoded(options: CorpusOptions) -> list[str]:
    """The training documents, decoded from the ids."""
    tokenizer = load_tokenizer(str(options.out / "tokenizer.json"))
    ids = numpy.load(options.out / "train.npy")
    ends = numpy.flatnonzero(ids == END_OF_TEXT_ID)
    return [tokenizer.decode(part[part != END_OF_TEXT_ID].tolist()) for part in numpy.split(ids, ends + 1)[:-1]]


def test_page_keeps_text_and_code_and_drops_navigation() -> None:
    page = page_text(PAGE)
    assert page.text == (
        "Reader\n\nA reader takes lines, one & all, from open().\n\nif a < b:\n    return a\n\n    b = 1\n\n"
        "- first item\n- second item\n\nName | Use\nx | a size\n\nread(n)\nRead n lines.\n"
    )
    assert page_text(PAGE, code_only=True).text == "if a < b:\n    return a\n\n    b = 1\n"


@pytest.mark.parametrize("page", ["<p>one<p>two", "<ul><li>one<li>two</ul>", "<div>one</p></div>two", "one<br>two<pre"])
def test_careless_pages_lose_no_text(page: str) -> None:
    text = page_text(page).text
    assert "one" in text and "two" in text and "onetwo" not in text


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    text = sentences(random.Random(2), 5)
    (tmp_path / "good.txt").write_text("\ufeff" + text.replace("\n", "\r\n"), encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 100)
    (tmp_path / "short.txt").write_text("too short")
    (tmp_path / "numbers.txt").write_text("12 34 56 78\n" * 50)
    (tmp_path / "genindex.html").write_text(f"<p>{text}</p>")
    (tmp_path / "links.html").write_text(f"<p><a href='x'>{text}</a></p>")
    (tmp_path / "out.txt").write_text(text)
    (tmp_path / "_sources").mkdir()
    (tmp_path / "_sources" / "copy.txt").write_text(text)
    (tmp_path / "lost.txt").symlink_to(tmp_path / "nowhere.txt")
    read = read_source(TextSource("mixed", tmp_path, "MIT", "prose", "1", exclude=("out*",)))
    assert [(document.name, document.text) for document in read.documents] == [("good.txt", text)]
    assert read.skipped == {"not UTF-8": 1, "short": 1, "few letters": 1, "index page": 2}


def test_generated_tables_of_code_are_dropped(tmp_path: Path) -> None:
    (tmp_path / "table.py").write_text("table = (\n" + "    'letter a with acute',\n" * 40 + ")\n")
    (tmp_path / "bytes.py").write_text("def check(data):\n    return data\n\n" + r"x = b'\x00\xffabcdefgh'" * 20)
    (tmp_path / "good.py").write_text(function(random.Random(1)) * 2)
    read = read_source(TextSource("code", tmp_path, "MIT", "code", "1"))
    assert [document.name for document in read.documents] == ["good.py"]
    assert read.skipped == {"table": 1, "escaped bytes": 1}


@given(st.text(alphabet="ab \n", max_size=400), st.integers(1, 60))
@settings(deadline=None)
def test_pieces_joined_give_the_text(text: str, characters: int) -> None:
    pieces = list(cut_pieces(text, characters))
    assert "".join(pieces) == text
    assert all(pieces)


def test_pieces_are_cut_between_definitions() -> None:
    text = "".join(function(random.Random(i)) for i in range(40))
    pieces = list(cut_pieces(text, 1000))
    assert len(pieces) > 5
    assert all(piece.startswith("def ") and len(piece) <= 2000 for piece in pieces)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A small tokenizer of made-up text."""
    return train_tokenizer([sentences(random.Random(i), 5) + " in 2024" * 50 for i in range(5)], 400)


@given(text=st.text())
@settings(deadline=None, max_examples=300)
def test_any_text_has_an_exact_round_trip(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert END_OF_TEXT_ID not in ids


def test_the_tokenizer_keeps_its_promises(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_to_id("<|endoftext|>") == END_OF_TEXT_ID
    assert tokenizer.get_vocab_size() <= 400
    # However often a number was seen, its digits stay single.
    assert [tokenizer.decode([i]) for i in tokenizer.encode("2024").ids] == ["2", "0", "2", "4"]
    # Written in a text, the letters of the end sign are text.
    text = "a <|endoftext|> b"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_files_agree_with_the_manifest(options: CorpusOptions) -> None:
    manifest = json.loads((options.out / "corpus.json").read_text())
    train, heldout = numpy.load(options.out / "train.npy"), numpy.load(options.out / "heldout.npy")
    assert train.dtype == heldout.dtype == numpy.uint16 and train.ndim == 1
    assert manifest["tokens"] == len(train) == sum(source["tokens"] for source in manifest["sources"])
    assert manifest["heldout_tokens"] == len(heldout)
    assert train[-1] == heldout[-1] == END_OF_TEXT_ID
    documents = decoded(options)
    assert len(documents) == sum(source["documents"] for source in manifest["sources"])
    assert sum(len(text.encode()) for text in documents) == sum(source["bytes"] for source in manifest["sources"])
    tales = next(source for source in manifest["sources"] if source["name"] == "tales")
    assert (tales["licence"], tales["version"], tales["category"]) == ("MIT", "1", "prose")
    # The copy of a file is dropped and counted.
    assert tales["documents"] + tales["heldout"]["documents"] == 24
    assert tales["skipped"] == {"duplicate": 1}
    # No folder of this machine is written down.
    assert str(options.out.parent) not in (options.out / "corpus.json").read_text()


def test_heldout_text_never_trains(options: CorpusOptions) -> None:
    tokenizer = load_tokenizer(str(options.out / "tokenizer.json"))
    index = json.loads((options.out / "heldout.json").read_text())
    heldout = list(heldout_documents(options.out, tokenizer))
    train = decoded(options)
    assert not {document.text for document in heldout} & set(train)
    assert {document.category for document in heldout} == set(PROMPT_CATEGORIES)
    for category in PROMPT_CATEGORIES:
        texts = [document.text for document in heldout if document.category == category]
        assert sum(len(text.encode()) for text in texts) == index["bytes"][category]
    # What a generated document recites comes from its own split.
    sentences_held = {line for d in heldout if d.category == "prose" for line in d.text.split("\n") if len(line) > 60}
    assert sentences_held and not [text for text in train if any(line in text for line in sentences_held)]
    repeats = [document for document in heldout if document.category == "repeats"]
    assert any(line in document.text for document in repeats for line in sentences_held)


def test_generated_text_has_its_share_and_sources_are_mixed(options: CorpusOptions) -> None:
    categories = json.loads((options.out / "corpus.json").read_text())["categories"]
    total = sum(counts["tokens"] for counts in categories.values())
    for category in ("arithmetic", "repeats"):
        # Whole batches are added, so a tiny corpus gets somewhat more than asked for.
        assert categories[category]["tokens"] / total >= 0.06
    code = [i for i, text in enumerate(decoded(options)) if text.startswith("import os")]
    assert max(code) - min(code) > 2 * len(code)


def test_a_finished_corpus_is_left_alone(options: CorpusOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in options.out.iterdir()}
    monkeypatch.setattr(corpus_module, "assemble", None)
    found = build_corpus(options)
    assert not found.built and found.manifest["tokens"] == len(numpy.load(options.out / "train.npy"))
    assert {path.name: path.stat().st_mtime_ns for path in options.out.iterdir()} == before
    with pytest.raises(SpeclaError, match="holds a corpus of other options"):
        build_corpus(replace(options, seed=4))
    with pytest.raises(SpeclaError, match="holds a corpus of other options"):
        build_corpus(replace(options, sources=options.sources[:2]))


def test_equal_seeds_give_equal_files_and_a_changed_text_is_noticed(options: CorpusOptions, tmp_path: Path) -> None:
    again = replace(options, out=tmp_path / "again")
    stages: list[str] = []
    build_corpus(again, lambda stage, done, total: stages.append(f"{stage} {done == total}"))
    for path in options.out.iterdir():
        assert (again.out / path.name).read_bytes() == path.read_bytes(), path.name
    assert {"read True", "tokenizer True", "encode True", "arithmetic True", "repeats True"} <= set(stages)
    book = tmp_path / "book.txt"
    book.write_text(sentences(random.Random(1), 300))
    one = CorpusOptions([TextSource("book", book, "MIT", "prose", "1")], tmp_path / "one", vocab_size=300)
    build_corpus(one)
    book.write_text(sentences(random.Random(2), 300))
    with pytest.raises(SpeclaError, match="other options or sources"):
        build_corpus(one)


def test_an_interrupted_build_leaves_nothing(
    options: CorpusOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(corpus_module, "_heldout_index", stop)
    with pytest.raises(KeyboardInterrupt):
        build_corpus(replace(options, out=tmp_path / "new"))
    assert list(tmp_path.iterdir()) == []


def test_prompts_come_from_heldout_documents_alone(options: CorpusOptions, tmp_path: Path) -> None:
    assert write_prompts(options.out, tmp_path, per_category=3) == dict.fromkeys(PROMPT_CATEGORIES, 3)
    tokenizer = load_tokenizer(str(options.out / "tokenizer.json"))
    heldout = {f"{d.source}: {d.name}": d for d in heldout_documents(options.out, tokenizer)}
    train = decoded(options)
    prompts = list(iterate_prompts(tmp_path))
    assert [prompt.id for prompt in prompts[:3]] == ["prose-000", "prose-001", "prose-002"]
    for prompt in prompts:
        assert prompt.prompt in heldout[prompt.source].text
        assert not any(prompt.prompt in text for text in train)
        assert 48 <= len(tokenizer.encode(prompt.prompt).ids) <= 256
        assert prompt.prompt == prompt.prompt.strip()
        rest = heldout[prompt.source].text.split(prompt.prompt, 1)[1]
        if prompt.category == "arithmetic":
            assert prompt.prompt.endswith("\nAnswer:") and rest.startswith(" ")
        if prompt.category == "code":
            assert rest.startswith("\n    ")
        if prompt.category == "repeats":
            start, end = heldout[prompt.source].again or (0, 0)
            assert start < len(prompt.prompt) < (start + end) / 2 + 1
    first = (tmp_path / "code.jsonl").read_bytes()
    write_prompts(options.out, tmp_path, per_category=3)
    assert (tmp_path / "code.jsonl").read_bytes() == first


def test_prompts_that_cannot_be_made_give_one_line(options: CorpusOptions, tmp_path: Path) -> None:
    with pytest.raises(SpeclaError, match=r"held-out prose gives \d+ prompts .* 500 are wanted"):
        write_prompts(options.out, tmp_path / "new", per_category=500)
    assert not (tmp_path / "new").exists()
    with pytest.raises(SpeclaError, match="no corpus there"):
        write_prompts(tmp_path, tmp_path / "new")
    (tmp_path / "prose.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(SpeclaError, match=r"prose\.jsonl:1: no prompt"):
        list(iterate_prompts(tmp_path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sources": []}, "corpus.sources is empty"),
        ({"vocab_size": 257}, "corpus.vocab_size=257: use 258 to 65536"),
        ({"vocab_size": 65537}, "corpus.vocab_size=65537"),
        ({"heldout_share": 0.0}, "corpus.heldout_share=0.0"),
        ({"repeats_share": 0.5}, "corpus.repeats_share=0.5"),
        ({"arithmetic_share": -0.1}, "corpus.arithmetic_share=-0.1"),
    ],
)
def test_options_out_of_range_are_named(options: CorpusOptions, change: dict[str, object], said: str) -> None:
    with pytest.raises(SpeclaError, match=said):
        replace(options, **change).validate()  # type: ignore[arg-type]


def test_bad_sources_and_outputs_give_one_line(options: CorpusOptions, tmp_path: Path) -> None:
    tales = options.sources[0]
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin").mkdir()
    (tmp_path / "latin" / "a.txt").write_bytes(b"\xe9" * 500)
    (tmp_path / "single.txt").write_text(sentences(random.Random(3), 4))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    new = tmp_path / "new"
    refusals = [
        ([replace(tales, path=tmp_path / "missing")], new, "source 'tales': .*missing is not there"),
        ([replace(tales, path=tmp_path / "empty")], new, "source 'tales': no text in .*empty"),
        ([replace(tales, path=tmp_path / "latin")], new, r"no usable text in .*latin \(1 not UTF-8\)"),
        ([replace(tales, path=tmp_path / "single.txt")], new, "category 'prose': 1 document in all"),
        ([tales, tales], new, "the name 'tales' is given twice"),
        ([tales], tmp_path / "single.txt" / "out", "cannot write"),
        ([tales], tmp_path / "full", "holds something that is no corpus"),
    ]
    for sources, out, said in refusals:
        with pytest.raises(SpeclaError, match=said) as caught:
            build_corpus(replace(options, sources=sources, out=out))
        assert "\n" not in str(caught.value)
    assert (tmp_path / "full" / "thesis.txt").read_text() == "mine"
    assert not new.exists() and not list(tmp_path.glob(".*"))


def test_a_disk_that_is_full_at_the_end_is_told_whoever_writes(
    options: CorpusOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokenizer's library has an error of its own for it."""
    monkeypatch.setattr("specla.train.corpus.assemble", lambda *_: None)
    monkeypatch.setattr("specla.train.corpus._manifest", lambda *_: {})
    for error in (Exception("No space left on device (os error 28)"), OSError("4096 requested and 0 written")):
        monkeypatch.setattr("specla.train.corpus._write_files", raising(error))
        with pytest.raises(OSError, match="No space left on device") as raised:
            build_corpus(replace(options, out=tmp_path / "out"))
        assert raised.value.filename == str(tmp_path / "out") and not list(tmp_path.iterdir())


def raising(error: Exception) -> Callable[..., None]:
    def write(*_: object) -> None:
        raise error

    return write
