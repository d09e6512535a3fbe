"""Folders that are whole or not there, on disks that end."""

import errno
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specla.models.whole_folder import whole_folder
from tests.disk import files_of_at_most


def test_a_folder_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with whole_folder(tmp_path / "some" / "model") as folder:
            (folder / "config.json").write_text(text)
    assert [path.name for path in (tmp_path / "some").iterdir()] == ["model"]
    assert (tmp_path / "some" / "model" / "config.json").read_text() == "two"


@pytest.mark.parametrize("before", [True, False])
def test_an_error_leaves_what_was_there(before: bool, tmp_path: Path) -> None:
    """Whatever library meets the end of the disk: the folder is named, not what was written beside it."""
    wanted = tmp_path / "model"
    if before:
        wanted.mkdir()
    with files_of_at_most(1000), pytest.raises(OSError, match="too large") as raised, whole_folder(wanted) as folder:
        save_file({"weight": torch.zeros(1000)}, folder / "model.safetensors")
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(wanted))
    with files_of_at_most(1000), pytest.raises(OSError, match="too large") as raised, whole_folder(wanted) as folder:
        (folder / "config.json").write_text("x" * 2000)
    assert raised.value.filename == str(wanted)
    with pytest.raises(ValueError, match="other"), whole_folder(wanted):
        raise ValueError("other")
    assert [path.name for path in tmp_path.iterdir()] == ["model"] * before
