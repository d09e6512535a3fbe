"""The house rules that a machine can hold: layers, sizes, what may be imported and printed, how fast help answers."""

import ast
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "interrupt"),
    ("topology",),
    ("best_tree",),
    ("ops",),
    ("models",),
    ("drafters",),
    ("engine",),
    ("bench",),
    ("report", "train"),
    ("cli",),
)
"""Lowest first. A part imports itself and what lies below; parts of one layer do not know each other."""
KERNELS = "specla.ops.kernels"
BELOW_KERNELS = tuple(
    f"specla.{name}"
    for name in (
        "errors",
        "topology",
        "ops.growth",
        "ops.known",
        "ops.lost",
        "ops.paths",
        "ops.sampling",
        "ops.texts",
        "ops.types",
    )
)
FILE_LINES, TEST_FILE_LINES = 300, 450
"""A test file is read an entry at a time and mirrors one file of specla, so it may be longer."""
FUNCTION_LINES, KERNEL_LINES = 60, 120
PARAMETERS = 8
EXCEPTIONS: dict[str, tuple[int, str]] = {}
"""What may be longer: 'FILE' or 'FILE:FUNCTION' -> (its limit, why it is right as it is)."""
NO_TORCH = (
    *("specla.errors", "specla.interrupt", "specla.topology", "specla.best_tree"),
    *("specla.models.config", "specla.models.cost"),
    *(
        f"specla.bench.{name}"
        for name in ("settings", "plan", "record", "kernel_times", "stats", "store", "summary", "machine")
    ),
)
"""What answers without torch, the report's modules and those of the command line besides: planning and records."""
HELP_SECONDS = 0.3
HELP_SLACK = 3
"""Shared cores and a cold disk cache may take this many times as long before the test fails."""


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: Path

    @property
    def place(self) -> str:
        """Its path from the root, for messages and exceptions."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def name(self) -> str:
        """As imported."""
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    @property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text(encoding="utf-8")

    def nodes(self) -> Iterator[ast.AST]:
        """Every node of its syntax tree."""
        return ast.walk(_tree(self.path))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method in it."""
        return (node for node in self.nodes() if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))

    def imports(self) -> Iterator[str]:
        """Full names of the modules of specla that it imports, anywhere in it; a name in one counts as a module."""
        for node in self.nodes():
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "specla")
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{self.place}:{node.lineno}: write imports in full, from the top"
                if (node.module or "").split(".")[0] == "specla":
                    yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


SOURCES = [Module(path) for path in sorted((ROOT / "specla").rglob("*.py"))]
TESTS = [Module(path) for path in sorted((ROOT / "tests").rglob("*.py"))]


def _layer(name: str) -> int:
    """Where a module of specla stands; the package itself, which holds only its version, is at the bottom."""
    parts = name.split(".")
    if len(parts) < 2 or parts[1] == "__version__":
        return -1
    if parts[1] == "__main__":
        return len(LAYERS)
    found = [rank for rank, layer in enumerate(LAYERS) if parts[1] in layer]
    assert found, f"{name}: give specla.{parts[1]} a layer, here and in CONTRIBUTING.md"
    return found[0]


def _limit(key: str, usual: int) -> int:
    return EXCEPTIONS[key][0] if key in EXCEPTIONS else usual


def test_imports_go_down_only() -> None:
    wrong = []
    for module in SOURCES:
        for target in module.imports():
            same = target.split(".")[1:2] == module.name.split(".")[1:2]
            if not same and _layer(target) >= _layer(module.name):
                wrong.append(f"{module.place} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_no_circle_between_files() -> None:
    """Imports inside functions, and those for types alone, counted as well."""
    names = {module.name for module in SOURCES}
    imported = {
        module.name: {target if target in names else target.rpartition(".")[0] for target in module.imports()}
        for module in SOURCES
    }
    # Raises CycleError, which names the files.
    TopologicalSorter({name: targets - {name} for name, targets in imported.items()}).prepare()


def test_kernels_know_nothing_of_what_calls_them() -> None:
    wrong = [
        f"{module.place} imports {target}"
        for module in SOURCES
        if module.name.startswith(KERNELS)
        for target in module.imports()
        if not target.startswith((KERNELS, *BELOW_KERNELS))
    ]
    assert not wrong, "\n".join(wrong)


def test_kernels_load_when_a_gpu_asks_for_them() -> None:
    """Outside the kernels no module imports Triton, and none imports a kernel but inside a function."""
    wrong = []
    for module in SOURCES:
        if module.name.startswith(KERNELS):
            continue
        late = {id(node) for function in module.functions() for node in ast.walk(function)}
        for node in module.nodes():
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            triton = any(name.split(".")[0] == "triton" for name in names)
            early = id(node) not in late and any(name.startswith(KERNELS) for name in names)
            if triton or early:
                wrong.append(f"{module.place}:{node.lineno} imports {', '.join(names)}")
    assert not wrong, "\n".join(wrong)


def test_files_are_short() -> None:
    long = []
    for module in SOURCES + TESTS:
        limit = _limit(module.place, FILE_LINES if module in SOURCES else TEST_FILE_LINES)
        lines = module.text.count("\n")
        if lines > limit:
            long.append(f"{module.place}: {lines} lines, {limit} allowed")
    assert not long, "\n".join(long)


def test_functions_are_short_with_few_parameters() -> None:
    wrong = []
    for module in SOURCES + TESTS:
        for function in module.functions():
            key = f"{module.place}:{function.name}"
            kernel = _is_kernel(function)
            limit = _limit(key, KERNEL_LINES if kernel else FUNCTION_LINES)
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > limit:
                wrong.append(f"{key}: {lines} lines, {limit} allowed")
            arguments = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
            names = [argument.arg for argument in arguments if argument.arg not in ("self", "cls")]
            if len(names) > PARAMETERS and not kernel:
                wrong.append(f"{key}: {len(names)} parameters, {PARAMETERS} allowed")
    assert not wrong, "\n".join(wrong)


def _is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a decorator makes it a Triton kernel."""
    return any("triton" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_exceptions_are_needed_and_have_reasons() -> None:
    known = {module.place: module for module in SOURCES + TESTS}
    for key, (limit, reason) in EXCEPTIONS.items():
        place, _, function = key.partition(":")
        assert place in known, f"{key}: no such file; drop its entry"
        if function:
            assert function in [f.name for f in known[place].functions()], f"{key}: no such function; drop its entry"
        else:
            usual = FILE_LINES if known[place] in SOURCES else TEST_FILE_LINES
            assert limit >= known[place].text.count("\n") > usual, f"{key}: is short enough; drop its entry"
        assert len(reason.split()) > 3, f"{key}: say why"


def test_only_the_command_line_prints() -> None:
    wrong = [
        f"{module.place}:{node.lineno}"
        for module in SOURCES
        if not module.name.startswith("specla.cli")
        for node in module.nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not wrong, "\n".join(wrong)


def test_open_ends_have_an_issue() -> None:
    mark = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b(?!\(#\d+\))")
    places = [*SOURCES, *TESTS, *(Module(path) for path in sorted((ROOT / "conf").rglob("*.yaml")))]
    wrong = [
        f"{module.place}:{number}: {line.strip()}"
        for module in places
        for number, line in enumerate(module.text.splitlines(), start=1)
        if mark.search(line)
    ]
    assert not wrong, "give an issue, as in (#12), or do it:\n" + "\n".join(wrong)


def test_planning_and_reporting_import_no_torch() -> None:
    above = [module.name for module in SOURCES if module.name.startswith(("specla.report", "specla.cli"))]
    script = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    script += "    if 'torch' in sys.modules:\n        sys.exit(f'{name} imports torch')\n"
    done = subprocess.run([sys.executable, "-c", script, *NO_TORCH, *above], cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_help_is_quick_and_imports_no_torch() -> None:
    if find_spec("specla.cli") is None:
        pytest.skip("no command line yet")
    call = "import sys; sys.argv = ['specla', '--help']; from specla.cli.main import main; main()"
    ended = f"try:\n    {call}\nexcept SystemExit as end:\n    sys.exit(end.code or int('torch' in sys.modules))"
    subprocess.run([sys.executable, "-c", ended], cwd=ROOT, check=True, capture_output=True)
    walls, processors = [], []
    for _ in range(3):
        start, used = time.perf_counter(), _children_seconds()
        subprocess.run([sys.executable, "-c", call], cwd=ROOT, check=True, capture_output=True)
        walls.append(time.perf_counter() - start)
        processors.append(_children_seconds() - used)
    told = f"--help took {min(walls):.2f} s, {min(processors):.2f} s of processor time; {HELP_SECONDS} s are meant"
    assert min(min(walls), min(processors)) < HELP_SLACK * HELP_SECONDS, told


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
