"""A command line that does not parse is answered in one line, which names what may have been meant."""

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("bnech", "No such command 'bnech'. Did you mean 'bench'? (specla --help)"),
        ("bench e3e", "bench: No such command 'e3e'. Did you mean 'e2e'? (specla bench --help)"),
        ("report --nope", "report: no such option '--nope'; did you mean '--name'? (specla report --help)"),
        (
            "bench e2e --dryrun",
            "bench e2e: no such option '--dryrun'; did you mean '--dry-run'? (specla bench e2e --help)",
        ),
        ("bench e2e --model=x", "bench e2e: no such option '--model'; a dial is a word, as in model=..."),
        (
            "bench e2e --max-new-tokens 3",
            "no such option '--max-new-tokens'; a dial is a word, as in workload.max_new_t",
        ),
        ("report --zz=x", "report: no such option '--zz' (specla report --help)"),
        ("bench e2e -n", "bench e2e: no such option '-n' (specla bench e2e --help)"),
        ("bench e2e --out", "Option '--out' requires an argument"),
        ("compare one", "compare: Missing argument 'NEW' (specla compare --help)"),
        ("compare one two three", "compare: Got unexpected extra argument(s) (three)"),
        ("compare one two --least=x", "compare: Invalid value for '--least'"),
        ("generate", "generate: Missing argument 'prompt'"),
    ],
)
def test_usage_errors_are_one_line(words: str, told: str, run: Run) -> None:
    code, out, err = run(f"specla {words}")
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert err.startswith(f"specla: {told}") or told in err, err


@pytest.mark.parametrize("words", ["", "bench", "ablate", "train"])
def test_no_command_at_all_gets_the_help(words: str, run: Run) -> None:
    code, out, err = run(f"specla {words}")
    assert code == 2 and "Usage: specla" in out + err
