"""`make coverage`: the lines of specla that tests run on a CPU, those that a GPU alone runs told beside them.

Kernels count: Triton's interpreter runs their bodies line by line, under their own names.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEAST = 90.0
"""Percent of the lines that can run on a CPU."""
GPU_ONLY: dict[str, str] = {
    "engine/graph.py": "captures CUDA graphs, and times by CUDA events",
    "bench/tile_trials.py": "compiles and times tiles on the GPU that they are for",
}
"""Under `specla/`: not counted, and why no CPU runs it whole. Tests marked `gpu` run it (`make test-gpu`). What else a
device does runs here through the interpreter."""


def main() -> int:
    """Print the table; 1 where too few lines ran."""
    from coverage import Coverage

    coverage = Coverage(config_file=str(ROOT / "pyproject.toml"))
    coverage.load()
    lines: dict[str, tuple[int, int]] = {}
    for file in coverage.get_data().measured_files():
        name = Path(file).relative_to(ROOT / "specla").as_posix()
        _, statements, _, missing, _ = coverage.analysis2(file)
        lines[name] = len(statements), len(statements) - len(missing)
    here = {name: count for name, count in lines.items() if name not in GPU_ONLY}
    print("on a CPU, the files with the fewest of their lines run:")
    for name, (whole, ran) in sorted(here.items(), key=lambda item: item[1][1] - item[1][0])[:25]:
        print(f"  {_percent(ran, whole):5.1f} %  {whole - ran:4d} not run  {name}")
    print("not counted, since a GPU alone runs them whole:")
    for name, reason in GPU_ONLY.items():
        whole, ran = lines.get(name, (0, 0))
        print(f"  {_percent(ran, whole):5.1f} %  {name}: {reason}")
    whole, ran = (sum(counts) for counts in zip(*here.values(), strict=True))
    print(f"{_percent(ran, whole):.1f} % of the {whole} lines that run on a CPU; {LEAST:g} % are meant")
    return int(_percent(ran, whole) < LEAST)


def _percent(ran: int, whole: int) -> float:
    return 100 * ran / whole if whole else 100.0


if __name__ == "__main__":
    sys.exit(main())
