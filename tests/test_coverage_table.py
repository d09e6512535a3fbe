"""What the coverage leaves out is there, and has its reason."""

from pathlib import Path

import specla
from tests.coverage_table import GPU_ONLY


def test_what_is_not_counted_exists_and_has_a_reason() -> None:
    for file, reason in GPU_ONLY.items():
        assert (Path(specla.__file__).parent / file).is_file(), file
        assert len(reason.split()) > 3, file
