"""Long fuzzing by atheris: `make fuzz`, or .venv/bin/python -m tests.fuzz.run [--seconds N] [TARGET...].

Every target runs by itself, two at a time, for so many seconds, on what it found before (`.cache/fuzz/TARGET`) and on
the seeds. A finding ends its target and lies in `.cache/fuzz/TARGET-findings`; exit code 1.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
FOUND = ROOT / ".cache" / "fuzz"
WORKERS = 2
LONGEST_INPUT = 16384
MEMORY_MB, UNIT_SECONDS = 4096, 60
"""Of one process, and for one input: more of either is a finding."""


def main() -> int:
    """Fuzz what was asked for; 1 where something was found."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGETS)}; all unless given")
    parser.add_argument("--seconds", type=int, default=600, help="for each target (600)")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        _fuzz(asked.here, asked.seconds)
    with ThreadPoolExecutor(WORKERS) as pool:
        clean = list(pool.map(lambda name: _start(name, asked.seconds), asked.targets or TARGETS))
    return int(not all(clean))


def _start(name: str, seconds: int) -> bool:
    """One target in a process of its own, which atheris never leaves; whether it found nothing."""
    log = FOUND / f"{name}.log"
    FOUND.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.run", "--here", name, "--seconds", str(seconds)]
    with log.open("w", encoding="utf-8") as output:
        code = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    last = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.startswith("Done ")]
    print(f"{name}: {'clean' if not code else 'FOUND something'}; {last[-1] if last else f'see {log}'}", flush=True)
    return not code


def _fuzz(name: str, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["specla"]):
        from tests.fuzz.seeds import seeds
        from tests.fuzz.targets import hold

        for seed in seeds(name):
            hold(TARGETS[name], seed)
    corpus, findings = FOUND / name, FOUND / f"{name}-findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds(name):
        (corpus / sha256(seed).hexdigest()[:16]).write_bytes(seed)
    options = {
        "max_total_time": seconds,
        "max_len": LONGEST_INPUT,
        "rss_limit_mb": MEMORY_MB,
        "timeout": UNIT_SECONDS,
        "print_final_stats": 1,
    }
    flags = [f"-{key}={value}" for key, value in options.items()]
    atheris.Setup(
        [sys.argv[0], *flags, f"-artifact_prefix={findings}/", str(corpus)], lambda data: hold(TARGETS[name], data)
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
