"""A command line that does not parse, in one line: what of it, what may have been meant, and where to look."""

from typing import Any

from specla.cli.console import DIAL


def usage_line(problem: Any) -> str:
    """Of an error of the library that parses.

    Args:
        problem: has `format_message`, and where it is known `ctx`; one about an option has `option_name`.
    """
    context = getattr(problem, "ctx", None)
    path = getattr(context, "command_path", "specla")
    message = " ".join(problem.format_message().split()).removesuffix(".")
    if hasattr(problem, "possibilities") and hasattr(problem, "option_name"):
        message = _unknown_option(problem.option_name, getattr(context, "command", None))
    before = path.removeprefix("specla").strip()
    return f"{f'{before}: ' * bool(before)}{message} ({path} --help)"


def _unknown_option(option: str, command: Any) -> str:
    # What reads the configuration takes a moment to load: not for --help.
    from specla.bench.settings import GROUPS, dials
    from specla.bench.validate import nearest

    parameters, asked = getattr(command, "params", ()), option.lstrip("-").replace("-", "_")
    known = [name for parameter in parameters for name in parameter.opts if name.startswith("--")]
    hint = nearest(option, known)
    if any(parameter.metavar == DIAL for parameter in parameters):
        words = {name.rpartition(".")[2]: name for name in (*dials(), *GROUPS)}
        hint = f"; a dial is a word, as in {words[asked]}=..." if asked in words else hint
    return f"no such option '{option}'{hint}"
