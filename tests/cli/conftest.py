"""Commands typed within the test's own process."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from specla.cli.main import main

Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Type a command in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def type_in(words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", shlex.split(words))
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        code = end.value.code
        return (code if isinstance(code, int) else 0), captured.out, captured.err

    return type_in
