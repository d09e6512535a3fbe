"""Prompt files of every kind, read without a guess; damaged and hostile ones, refused in one bounded line."""

import gzip
import io
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from specla.bench.settings import WorkloadSettings
from specla.bench.workloads import unpack
from specla.bench.workloads.files import ENDINGS, Table, file_rows, rows_of
from specla.bench.workloads.sources import prompts_in
from specla.bench.workloads.unpack import PACKED
from specla.errors import SpeclaError

MOST_LINE = 600
"""Characters that a message may have, whatever the file: paths of tests are a hundred long."""


def parquet_bytes(**columns: Any) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue()


def zstd(data: bytes) -> bytes:
    return bytes(pyarrow.compress(data, codec="zstd", asbytes=True))


def values(table: Table) -> list[dict[str, Any]]:
    return [dict(row.values) for row in table.rows]


def refusal(data: bytes, name: str, **limits: int) -> str:
    with pytest.raises(SpeclaError) as caught:
        rows_of(data, name, **limits)
    line = str(caught.value)
    assert line.startswith("workload.path=") and line.isprintable() and len(line) <= MOST_LINE
    return line


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a.csv", "prompt\nnull\nDefine the word below.\nNA\n", ["null", "Define the word below.", "NA"]),
        ("a.csv", "prompt\n12\n34\n56\n78\n", ["12", "34", "56", "78"]),
        ("a.csv", "prompt\n007\ntrue\n1e5\nNaN\n2024-01-01\n", ["007", "true", "1e5", "NaN", "2024-01-01"]),
        ("a.csv", 'prompt\r\n"two\nlines"\r\n"a, b"\r"say ""hi"""\n\n x \n', ["two\nlines", "a, b", 'say "hi"', " x "]),
        ("a.CSV", "\ufeffprompt\nx\n", ["x"]),
        ("a.csv", '\ufeff"prompt",,\nx,1,2\n', ["x"]),
        ("a.tsv", "id\tprompt\n1\ta, b\n", ["a, b"]),
        ("a.jsonl", '{"prompt": "2024-01-01"}\n' * 2, ["2024-01-01"] * 2),
        ("a.json", '{\n "prompt": "a"\n}\n{\n "prompt": "b"\n}\n', ["a", "b"]),
        ("a.json", '{"prompt": "a"}{"prompt": "b"} \ufeff{"prompt": "c"}', ["a", "b", "c"]),
        ("a.tsv", 'prompt\n"two\nlines"\nb\n', ["two\nlines", "b"]),
        ("a.tsv", 'n\tprompt\n1\t"two\nlines"\n', ["two\nlines"]),
        ("a.JSONL", '\ufeff{"prompt": "a\u2028b"}\r\n\r\n{"prompt": "c"}', ["a\u2028b", "c"]),
        ("a.ndjson", '{"prompt": "a"}\r{"prompt": "b"}\n', ["a", "b"]),
        ("a.json", '[{"prompt": "a"}, {"prompt": "b"}]', ["a", "b"]),
        ("a.json", '{"version": 1, "data": [{"prompt": "a"}, {"prompt": "b"}]}', ["a", "b"]),
        ("a.json", '{"prompt": ["a", "b"], "id": [1, 2]}', ["a", "b"]),
        ("a.json", '{"prompt": "a", "tags": ["x"]}', ["a"]),
        ("a.json", '{"prompt": "sys", "tags": ["x"], "data": [{"prompt": "a"}, {"prompt": "b"}]}', ["a", "b"]),
        ("a.json", '{"text": "My data set", "rows": [{"prompt": "a"}]}', ["a"]),
        ("a.json", '{"messages": [{"prompt": "a"}]}', ["a"]),
        ("a.json", '{"prompt": ["a", "b"], "turns": [["x"], ["y"]]}', ["a", "b"]),
        ("a.json", '{"prompt": [{"role": "user"}], "tools": [{"type": "x"}]}', [[{"role": "user"}]]),
        ("a.csv", "sep=,\nprompt,id\na,1\n", ["a"]),
        ("a.csv", '\ufeffprompt\na\n\ufeff"prompt"\n"b\n\ufeffc"\n', ["a", "prompt", "b\n\ufeffc"]),
        ("a.jsonl", '\ufeff{"prompt": "a"}\n\ufeff{"prompt": "\ufeffb"}\n\ufeff\n', ["a", "\ufeffb"]),
        ("a.json", '\ufeff {"prompt": "a"}\n{"prompt": "b"}\n', ["a", "b"]),
    ],
)
def test_text_stays_text(name: str, content: str, texts: list[str]) -> None:
    assert [row.values["prompt"] for row in rows_of(content.encode(), name).rows] == texts


def test_bare_texts_are_rows_of_one_column() -> None:
    for name, content in (("a.txt", "one\r\n two \r\u2028three"), ("a.jsonl", '"one"\n" two "\n"\u2028three"\n')):
        assert [row.values["text"] for row in rows_of(content.encode(), name).rows] == ["one", " two ", "\u2028three"]
    assert values(rows_of(b'["one", "two"]', "a.json")) == [{"text": "one"}, {"text": "two"}]
    assert values(rows_of(b'"one"', "a.json")) == [{"text": "one"}]
    assert values(rows_of(b"\xef\xbb\xbfone\n", "a.txt")) == [{"text": "one"}]


def test_every_row_knows_its_place() -> None:
    places = [row.place for row in rows_of(b'prompt,x\n"two\nlines",1\n\nlast,2\n', "a.csv").rows]
    assert places == ["line 2", "line 5"]
    assert [row.place for row in rows_of(b'\n{"a": 1}\n\n{"a": 2}', "a.jsonl").rows] == ["line 2", "line 4"]
    assert [row.place for row in rows_of(b'[{"a": 1},\n{"a": 2}]', "a.json").rows] == ["row 1", "row 2"]
    assert [row.place for row in rows_of(parquet_bytes(a=["x"] * 40), "a.parquet").rows][-1] == "row 40"


def test_parquet_keeps_what_it_stores() -> None:
    data = parquet_bytes(prompt=["null", "12"], id=[7, None], turns=[["a", "b"], []], image=[b"\xff", b""])
    table = rows_of(data, "a.PARQUET", {"prompt", "id", "turns"})
    assert values(table) == [
        {"prompt": "null", "id": 7, "turns": ["a", "b"]},
        {"prompt": "12", "id": None, "turns": []},
    ]
    assert table.columns == ("prompt", "id", "turns", "image")


def test_xz_is_read_with_the_padding_that_may_follow() -> None:
    assert len(rows_of(lzma.compress(b"one\ntwo\n") + bytes(8), "a.txt.xz").rows) == 2


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".XZ", lzma.compress), (".zst", zstd)])
def test_packed_files(ending: str, pack: Any, tmp_path: Path) -> None:
    content = b'{"prompt": "one"}\n{"prompt": "two"}\n'
    packed = pack(content)
    (tmp_path / f"a.jsonl{ending}").write_bytes(packed)
    assert [row.values["prompt"] for row in file_rows(str(tmp_path / f"a.jsonl{ending}")).rows] == ["one", "two"]
    # Joined members are one file, as `cat` makes it.
    assert len(rows_of(packed + packed, f"a.jsonl{ending}").rows) == 4
    for damaged in (packed[:-3], packed[: len(packed) // 2], b"no archive", b"\x1f\x8b" + bytes(40)):
        assert f"cannot be unpacked as {ending[1:].lower()}" in refusal(damaged, f"a.jsonl{ending}")
    bomb = pack(bytes(10_000_000))
    assert len(bomb) < 20_000
    assert "unpacks to over 1,000,000 bytes" in refusal(bomb, f"a.jsonl{ending}", most=1_000_000)


def test_a_giant_cell_of_parquet_is_not_unpacked() -> None:
    data = parquet_bytes(prompt=["word " * 100_000] * 100)
    assert len(data) < 2_000_000
    assert "unpacks to over 9,000,000 bytes" in refusal(data, "a.parquet", most=9_000_000)


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.md", b"text", "the ending must be one of .jsonl, .ndjson, .json, .csv, .tsv, .txt, .parquet, in any case"),
        ("a.gz", b"text", "the ending must be one of"),
        ("jsonl", b"text", "the ending must be one of"),
        ("a.jsonl", b"", "the file is empty"),
        ("a.txt", b"\xef\xbb\xbf \r\n\n", "the file holds white space alone"),
        ("a.txt", b"abc\r\nd\xffe\n", "line 2: byte 0xff is not UTF-8"),
        ("a.csv", "prompt\r\u00e4\r".encode("latin-1"), "line 2: byte 0xe4 is not UTF-8"),
        ("a.csv", "prompt\na".encode("utf-16"), "is UTF-16; convert it"),
        ("a.csv", "\ufeffprompt".encode("utf-16-be"), "is UTF-16; convert it"),
        ("a.json", "[]".encode("utf-32"), "is UTF-32; convert it"),
        ("a.jsonl", '{"prompt": "a"}'.encode("utf-16-le"), "line 1: a NUL byte, so no text"),
        ("a.txt", b"a\nb\x00c", "line 2: a NUL byte"),
        ("a.csv", b"prompt\n", "holds its header alone (prompt), and no rows"),
        ("a.csv", b'""\n1\n', "line 1: the first line names no column"),
        ("a.csv", b"prompt,id,prompt\n1,2,3\n", "line 1: names column prompt twice"),
        ("a.csv", b"prompt\na, b\n", "line 2: has 2 cells, the header 1; quote a cell that holds separators"),
        ("a.csv", b'id,prompt\n1,"a\nb"\n2\n', "line 4: has 1 cells, the header 2"),
        ("a.csv", b'prompt\nok\n"open\nand on\n', "line 3: a quote opens in this row and is never closed"),
        ("a.csv", b'prompt\n"a"b\n', "line 2: not CSV ("),
        ("a.tsv", b'prompt\n"a"b\n', "line 2: not TSV"),
        ("a.tsv", b'prompt\n"a"b\n', 'double a quote that is text, as in "a ""word"""'),
        ("a.tsv", b'n\tprompt\n1\t"a\n2\tb\n3\tc"\n', "line 2: a cell in quotes runs over lines with 2 columns of"),
        ("a.jsonl", b'{\n"prompt": "a"\n}', "column 2); give one JSON object a line, as `jq -c .` writes them"),
        ("a.json", b'{"prompt": "a"}\n\n{"prompt"}', "line 3: not JSON (Expecting ':' delimiter, column 10)"),
        ("a.json", b'{"prompt": "a"}\n12', "line 2: holds 12, a number; give objects, one behind another"),
        ("a.jsonl", b'{"prompt": "a"}\n{"prompt": "b"\n', "line 2: not JSON (Expecting ',' delimiter, column 15)"),
        ("a.jsonl", b'{"a": 1}\n[{"prompt": "a"}]\n', "line 2: holds a list of 1, [{'prompt': 'a'}]; JSON lines"),
        ("a.jsonl", b'{"a": 1}\n12\n', "line 2: holds 12, a number; JSON lines have an object in each line"),
        ("a.jsonl", b'{"prompt": "a", "prompt": "b"}', "line 1: not JSON that can be read (names prompt twice)"),
        ("a.jsonl", b'{"a":' * 100_000, "line 1: not JSON that can be read (nested too deeply)"),
        ("a.json", b"[" * 100_000, "not JSON that can be read (nested too deeply)"),
        ("a.jsonl", b'{"id": ' + b"9" * 5000 + b"}", "line 1: not JSON that can be read (Exceeds the limit"),
        ("a.json", b'[{"prompt": "a"}]\n\nx', "line 3: not JSON (more follows after its end)"),
        ("a.json", b'[{"prompt":\n"a"}', "line 2: not JSON (Expecting ',' delimiter, column 5)"),
        ("a.json", b"[]", "holds an empty list"),
        ("a.json", b'{"data": []}', "holds the empty columns data"),
        ("a.json", b"12", "row 1: holds 12, a number; give a list of objects"),
        ("a.json", b'[{"prompt": "a"}, null]', "row 2: holds null; a row is an object or a text"),
        ("a.json", b'{"train": [{"a": 1}], "test": [{"a": 1}]}', "holds 2 lists (train, test); keep the one"),
        (
            "a.json",
            b'{"turns": ["a"], "data": [{"prompt": "a"}]}',
            "a conversation in turns and rows in data; keep one",
        ),
        ("a.json", b'{"prompt": {"0": "a"}, "id": {"0": 1}}', 'write it with pandas\' orient="records"'),
        ("a.json", b'{"0": {"prompt": "a"}, "1": {"prompt": "b"}}', 'write it with pandas\' orient="records"'),
        ("a.json", b'{"columns": ["prompt"], "index": [0], "data": [["a"]]}', 'pandas\' orient="records"'),
        (
            "a.csv",
            b"id;prompt\n1;a, b\n",
            "line 2: has 2 cells, the header 1; quote a cell that holds separators (sepa",
        ),
        ("a.csv", b'"id";"prompt"\n1;a\n', "(separated by semicolons? save it with commas, or as .tsv)"),
        ("a.csv", b"sep=;\nid;prompt\n1;a, b\n", "(separated by semicolons? save it with commas, or as .tsv)"),
        ("a.xlsx", b"text", "is an Excel file: export it as CSV"),
        ("a.csv", b"PK\x03\x04 xl/workbook.xml", "is an Excel file: export it as CSV"),
        ("a.csv", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an Excel file: export it as CSV"),
        ("a.jsonl", b"PK\x03\x04 a.jsonl", "is a zip archive: take the file out of it"),
        ("a.jsonl", gzip.compress(b"{}"), "is gzip: name it .jsonl.gz"),
        ("a.csv.gz", lzma.compress(b"{}"), "is xz: name it .csv.xz"),
        ("a.parquet", zstd(b"PAR1"), "is zstd: name it .parquet.zst"),
        ("a.txt.gz", gzip.compress(gzip.compress(b"{}")), "is gzip: name it .txt.gz"),
        ("a.jsonl.gz", gzip.compress(b""), "the file is empty"),
        ("a.json", b'{"prompt": ["a"], "id": [1, 2]}', "its columns prompt, id have 1 to 2 rows"),
        ("a.parquet", b"PAR1 no parquet PAR1", "cannot be read as Parquet ("),
        ("a.parquet", parquet_bytes(prompt=pyarrow.array([], "string")), "holds the columns prompt and no rows"),
        ("a.parquet", parquet_bytes(prompt=["x" * 99])[:-9], "cannot be read as Parquet ("),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_cannot_be_read_is_told_in_a_line(name: str, data: bytes, told: str) -> None:
    assert told in refusal(data, name)


@pytest.mark.parametrize("ending", [*ENDINGS, ".jsonl.gz"])
def test_a_git_lfs_pointer_is_named(ending: str) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    assert "is a git-lfs pointer, not the file" in refusal(pointer, f"a{ending}")


def test_a_damaged_column_of_parquet_is_named() -> None:
    sink = io.BytesIO()
    table = pyarrow.table({"id": ["7"] * 50, "prompt": ["word " * 99] * 50})
    parquet.write_table(table, sink, compression="zstd", use_dictionary=False)
    data = sink.getvalue()
    chunk = parquet.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(1)
    end = chunk.data_page_offset + chunk.total_compressed_size
    told = refusal(data[: end - 20] + bytes(20) + data[end:], "a.parquet")
    assert told.startswith("workload.path=a.parquet: column prompt: cannot be read as Parquet (")


def test_a_hundred_thousand_columns_and_a_very_long_line() -> None:
    names = ",".join(f"c{i}" for i in range(100_000))
    assert "(c0, c1, c2, c3, c4, c5, c6, c7 and 99,992 more)" in refusal(names.encode(), "a.csv")
    assert "names column c0 twice" in refusal(f"{names},c0".encode(), "a.csv")
    row = json.dumps(dict.fromkeys(names.split(","), 0)).encode()
    table = rows_of(row, "a.jsonl")
    with pytest.raises(
        SpeclaError, match="there is no such column; no column holds text or a conversation: write"
    ) as caught:
        table.value(table.rows[0], "prompt")
    assert len(str(caught.value)) < MOST_LINE
    assert "holds a list of 1, ['xxx" in refusal(json.dumps(["x" * 1_000_000]).encode(), "a.jsonl")
    long = rows_of(f"prompt\n{'x' * 1_000_000}\n".encode(), "a.csv")
    assert len(long.rows[0].values["prompt"]) == 1_000_000


def test_a_name_of_a_line_break_stays_on_the_line() -> None:
    assert "b" in refusal(b'"a\nb","a\nb"\n1,2\n', "a\x1b[31m.csv")
    told = str(missing(b"id;prompt\n1;x\n", "a.csv", "prompt"))
    assert told.endswith("no such column (separated by semicolons? save it with commas, or as .tsv)")


def missing(data: bytes, name: str, column: str) -> SpeclaError:
    table = rows_of(data, name)
    with pytest.raises(SpeclaError) as caught:
        table.value(table.rows[-1], column)
    return caught.value


def test_a_missing_column_is_told_with_those_there_are() -> None:
    told = str(missing(b'{"question": "a", "x\\ny": 1}', "a.jsonl", "prompt"))
    assert told == (
        "workload.column=prompt: workload.path=a.jsonl: there is no such column; set it to one that holds text or a "
        "conversation: question"
    )
    told = str(missing(b'{"n": 1, "list": ["a"], "empty": " "}', "a.jsonl", "prompt"))
    assert told.endswith("no column holds text or a conversation: write one prompt a line in a column prompt")
    told = str(missing(b'{"prompt": "a"}\n{"text": "b"}\n', "a.jsonl", "prompt"))
    assert told == "workload.path=a.jsonl: line 2 has no column prompt; it has text"
    data = json.dumps({"data": [{"prompt": "word " * 2000}] * 50}).encode()
    told = str(missing(data, "a.json", "data"))
    assert "data holds the rows, a list of 50, [{'prompt': 'word word" in told and told.endswith(": prompt")
    columns = {"title": ["a"], "n": [1], "chat": [[{"role": "user", "content": "a"}]], "tags": [["x"]], "id": ["7"]}
    table = rows_of(parquet_bytes(**columns), "a.parquet", {"prompt", "id"})
    with pytest.raises(SpeclaError, match=r"holds text or a conversation: title, chat, id$"):
        table.value(table.rows[0], "prompt")


def test_what_is_no_ordinary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(path: Path | str) -> str:
        with pytest.raises(SpeclaError) as caught:
            file_rows(str(path))
        line = str(caught.value)
        assert line.startswith("workload.path=") and line.isprintable()
        return line

    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    (tmp_path / "null.jsonl").symlink_to("/dev/zero")
    (tmp_path / "dangling.jsonl").symlink_to(tmp_path / "nowhere")
    with (tmp_path / "huge.jsonl").open("wb") as sparse:
        sparse.truncate(unpack.MOST_BYTES + 1)
    assert told(tmp_path).endswith("is a folder; name a file in it")
    assert "is no ordinary file" in told(tmp_path / "pipe.jsonl")
    assert "is no ordinary file" in told(tmp_path / "null.jsonl")
    assert "cannot be read (Too many levels of symbolic links)" in told(tmp_path / "loop.jsonl")
    assert told(tmp_path / "dangling.jsonl").endswith("no such file")
    assert "is 1,073,741,825 bytes, over 1,073,741,824" in told(tmp_path / "huge.jsonl")
    assert "cannot be read" in told("a\x00b.jsonl")
    assert "cannot be read (File name too long)" in told("x" * 5000 + ".jsonl")
    assert told("~nobody-of-this-name/a.jsonl").endswith("no such file")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~tilde.txt").write_text("one")
    assert values(file_rows("~tilde.txt")) == [{"text": "one"}]
    assert "cannot be read (Not a directory)" in told("/dev/null/a.jsonl")

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "locked.jsonl").write_text("{}")
    monkeypatch.setattr(Path, "open", refused)
    assert "cannot be read (Permission denied)" in told(tmp_path / "locked.jsonl")


@given(st.binary(max_size=200), st.sampled_from([*ENDINGS, *(f".jsonl{packing}" for packing in PACKED), ".x"]))
@example(b'{"prompt": "\\ud800"}', ".jsonl")
@example(b'\xef\xbb\xbf"', ".csv")
@example(b"{}\n{}", ".json")
def test_any_bytes_are_rows_or_a_line(data: bytes, ending: str) -> None:
    line = ""
    try:
        table = rows_of(data, f"a{ending}")
        assert all(row.place for row in table.rows)
        prompts_in(table, WorkloadSettings(name="dataset", turns="all"))
    except SpeclaError as error:
        line = str(error)
    assert len(line) < MOST_LINE and line.isprintable()


def test_reading_imports_no_torch() -> None:
    code = (
        "import sys\nfrom specla.bench.plan import plan\nfrom specla.bench.inputs import check_inputs\n"
        "words = ['workload=human-eval', 'workload.prompts=164']\n"
        "check_inputs(plan('bench e2e', words), fetch=False)\nsys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
