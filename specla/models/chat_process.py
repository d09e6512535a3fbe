"""The process that applies a chat template: a program from elsewhere, which may ask for any time and any memory.

It reads JSON lines from stdin: first what `ChatTemplate.render` asks for, then a conversation each. To each it answers
a line, `{"text": ...}` or `{"error": ...}`: first for the template itself, and none after an error. The timer's signal
ends it in the middle of anything, even of one multiplication.

It is started as a file, with nothing of specla loaded. Its sandbox is jinja2's, with the names that templates know from
transformers, which takes seconds to load.
"""

import contextlib
import json
import resource
import signal
import sys
import traceback
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_MEMORY_BYTES = 1 << 30
"""Of address space, many times what any conversation takes."""


class _Generation(Extension):
    """`{% generation %}`, around what a model has said: a training's mask, and nothing to a text."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Namespace(Namespace):
    """jinja2's, without the names that reach Python's own."""

    def __init__(*args: Any, **named: Any) -> None:
        self, *given = args
        values = dict(*given, **named)
        for name in values:
            _refuse_own(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_own(name)
        super().__setitem__(name, value)


def _refuse_own(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace takes no name like {name!r}")


def _raise(message: object) -> None:
    raise TemplateError(str(message))


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _to_json
    made.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": lambda *args, **named: dict(*args, **named),
        "namespace": _Namespace,
    }
    return made


def _reason(error: BaseException) -> str:
    """What went wrong and, where it is known, in which line of the template."""
    said = error.message if isinstance(error, TemplateSyntaxError) else str(error)
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == "<template>"]
    line = error.lineno if isinstance(error, TemplateSyntaxError) else (lines or [0])[-1]
    name = type(error).__name__
    return (f"{name}: {said}" if said else name) + (f", line {line}" if line else "")


def _rendered(template: Any, asked: dict[str, Any], conversation: list[dict[str, str]]) -> str:
    known = {"tools": None, "documents": None, "add_generation_prompt": True, **asked["tokens"]}
    text: str = template.render(messages=conversation, **known)
    text.encode()
    if len(text) > asked["bytes"]:
        raise ValueError(f"makes {len(text):,} characters of a conversation")
    return text


def _answer(given: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(given) + "\n")
    sys.stdout.flush()


def _limit_memory() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _MEMORY_BYTES if most == resource.RLIM_INFINITY else min(most, _MEMORY_BYTES)
    # Not every system keeps such a limit; the time is limited on all.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (wanted, most))


def main() -> None:
    """Answer until stdin ends or the template fails."""
    _limit_memory()
    asked = json.loads(sys.stdin.readline())
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    try:
        signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
        template = _environment().from_string(asked["template"])
        _answer({"text": ""})
        for line in sys.stdin:
            signal.setitimer(signal.ITIMER_PROF, asked["seconds"])
            _answer({"text": _rendered(template, asked, json.loads(line))})
    except Exception as error:  # a template may raise anything that Python does
        _answer({"error": _reason(error)})


if __name__ == "__main__":
    main()
