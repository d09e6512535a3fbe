"""Every relative link of a tracked page leads to a tracked file, and every file that a page names is there."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    """Files and their folders, from the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no git checkout")
    files = listed.stdout.strip("\0").split("\0")
    return {*files, *(parent.as_posix() for file in files for parent in Path(file).parents)}


def links(page: str) -> list[str]:
    found = [one or other for one, other in LINK.findall((ROOT / page).read_text(encoding="utf-8"))]
    return [link.partition("#")[0] for link in found if not re.match(r"[a-z]+:|#", link)]


def test_links_lead_to_tracked_files(tracked: set[str]) -> None:
    pages = [file for file in tracked if file.endswith(".md")]
    places = [(page, link, (ROOT / page).parent / link) for page in pages for link in links(page)]
    dead = [f"{page}: {link}" for page, link, path in places if _from_root(path) not in tracked]
    assert len(places) > 20 and not dead, "\n".join(dead)


def test_pages_name_files_that_are_there(tracked: set[str]) -> None:
    named = re.compile(r"`((?:specla|tests)/[\w./]+\.(?:py|md))`")
    pages = ("README.md", "CONTRIBUTING.md", "tests/mutants/README.md")
    found = [(page, name) for page in pages for name in named.findall((ROOT / page).read_text(encoding="utf-8"))]
    dead = [f"{page}: {name}" for page, name in found if name not in tracked]
    assert len(found) > 20 and not dead, "\n".join(dead)


def _from_root(path: Path) -> str:
    return path.resolve().relative_to(ROOT.resolve()).as_posix()
