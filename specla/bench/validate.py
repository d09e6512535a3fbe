"""What the schema's types cannot say: names, ranges, and what a choice cannot do without."""

import difflib
import math
import os
from collections.abc import Iterable
from typing import Any

from specla.bench.settings import Settings, get
from specla.bench.strategies import AUTO, DIALS
from specla.errors import SpeclaError
from specla.models.config import MOST
from specla.topology import MAX_NODES

_PROMPTS = "batch prompts? max_new_tokens prompt_tokens?"

# The dials that each choice of a group uses; one with a question mark may be null.
_USES: dict[str, dict[str, str]] = {
    "drafter": {
        "none": "",
        "oracle": "alpha? cost profile? vocabulary?",
        "ngram": "max_ngram min_ngram",
        "aligned": "path? vocabulary?",
    },
    "topology": {
        "root": "",
        "chain": "length",
        "kary": "branching nodes length?",
        "explicit": "parents?",
        "confidence": "branching nodes margin? length?",
        AUTO: "nodes",
    },
    "engine": {
        "specla": "verify recover adaptive? ring?",
        "fla-generate": "verify recover",
        "fla-graph": "verify recover",
    },
    "workload": {
        "none": "batch",
        "heldout": f"{_PROMPTS} categories?",
        "human-eval": f"{_PROMPTS} path?",
        "gsm8k": f"{_PROMPTS} path?",
        "spec-bench": f"{_PROMPTS} path? turns categories?",
        "dataset": f"{_PROMPTS} path? dataset? subset? split? column? turns categories?",
    },
}

_AT_LEAST_ONE = (1.0, MOST, "give 1 or more")
_NOT_NEGATIVE = (0.0, MOST, "give 0 or more")
_POSITIVE = (math.ulp(0.0), MOST, "give a number over 0")

LARGEST_SEED = 2**53
"""What JSON keeps to the last digit."""

COLDEST = 1e-3
"""The lowest temperature but 0: logits over one that is much lower overflow."""

_RANGES: dict[str, tuple[float, float, str]] = {
    "seed": (0.0, LARGEST_SEED, "give 0 or more"),
    "threads": _AT_LEAST_ONE,
    "sampling.temperature": (0.0, 1000.0, "0 is greedy, and no temperature is below it"),
    "sampling.top_p": (math.ulp(0.0), 1.0, "give a share of the probability over 0"),
    **dict.fromkeys(
        (
            "model.hidden_size",
            "model.num_hidden_layers",
            "model.num_heads",
            "model.num_v_heads",
            "model.head_dim",
            "model.intermediate_size",
            "model.vocab_size",
        ),
        _AT_LEAST_ONE,
    ),
    "model.expand_v": _POSITIVE,
    "model.norm_eps": _POSITIVE,
    "drafter.max_ngram": _AT_LEAST_ONE,
    "drafter.min_ngram": _AT_LEAST_ONE,
    "drafter.vocabulary": _AT_LEAST_ONE,
    "topology.length": (1, MAX_NODES - 1, "a tree needs at least one level of drafts"),
    "topology.nodes": (2, MAX_NODES, "a tree has its root and at least one draft"),
    "topology.branching": (1, MAX_NODES - 1, "a node has at least one child"),
    "topology.margin": _POSITIVE,
    "engine.ring": _AT_LEAST_ONE,
    "workload.batch": _AT_LEAST_ONE,
    "workload.prompts": _AT_LEAST_ONE,
    "workload.prompt_tokens": _AT_LEAST_ONE,
    "workload.max_new_tokens": _AT_LEAST_ONE,
    "measure.repeats": _AT_LEAST_ONE,
    "measure.warmup": _NOT_NEGATIVE,
    "measure.sample_ms": _POSITIVE,
    "measure.calibration": _AT_LEAST_ONE,
    "measure.accepted": _NOT_NEGATIVE,
}

_NAMES: dict[str, tuple[str, ...]] = {
    "device": ("auto", "cpu", "cuda"),
    "dtype": ("auto", "float32", "float16", "bfloat16"),
    "model.weights": ("checkpoint", "random"),
    "drafter.cost": ("none", "aligned"),
    "workload.turns": ("first", "all"),
    **{dial: tuple(table) for dial, table in DIALS.items()},
    "engine.recover": (AUTO, *DIALS["engine.recover"]),
}


def used(group: str, choice: str) -> tuple[str, ...] | None:
    """The dials of a group that a choice uses, its name aside; None where every choice uses all."""
    if group not in _USES:
        return None
    return tuple(dial.rstrip("?") for dial in _USES[group][choice].split())


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` for a misspelt word, or nothing."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{found[0]}'?" if found else ""


def check_names(settings: Settings) -> None:
    """Raise SpeclaError for a name that is not in its list."""
    for key, names in _NAMES.items():
        value = get(settings, key)
        if value is not None and value not in names:
            raise SpeclaError(f"{key}={value}: no such name{nearest(value, names)} ({', '.join(names)})")


def validate(settings: Settings) -> None:
    """Raise SpeclaError for a range that is exceeded, a dial that is missing, or dials that contradict each other.

    Dials that a choice does not use are None by now. Inputs that are missing altogether are for `missing_inputs`.
    """
    check_names(settings)
    for group, choices in _USES.items():
        choice = get(settings, f"{group}.name")
        for dial in choices[choice].split():
            if not dial.endswith("?") and get(settings, f"{group}.{dial}") is None:
                raise SpeclaError(f"{group}.{dial}=null: {group}={choice} needs it")
    for key, (low, high, why) in _RANGES.items():
        value = get(settings, key)
        if value is not None and value != value:
            raise SpeclaError(f"{key}=nan: give a number")
        if value is not None and not low <= value <= high:
            raise SpeclaError(f"{key}={show(value)}: {why if value < low else f'give at most {high:.0f}'}")
    if 0 < settings.sampling.temperature < COLDEST:
        given = show(settings.sampling.temperature)
        raise SpeclaError(f"sampling.temperature={given}: give 0, which is greedy, or {COLDEST:g} to 1000")
    cores = os.cpu_count() or 1
    if settings.threads is not None and settings.threads > cores:
        raise SpeclaError(f"threads={settings.threads}: this machine has {cores} cores")
    _validate_model(settings)
    _validate_drafter(settings)
    topology = settings.topology
    if topology.name == AUTO and settings.measure.calibration is None:
        raise SpeclaError("measure.calibration=null: topology=auto needs prompts to choose its tree on; give a number")
    if topology.parents is not None and len(topology.parents) < 2:
        raise SpeclaError(f"topology.parents={show(topology.parents)}: a tree needs at least one level of drafts")
    baseline = settings.baseline
    if (baseline.module is None) != (baseline.function is None):
        raise SpeclaError(
            f"baseline.module={show(baseline.module)}, baseline.function={show(baseline.function)}: "
            "a baseline is a function of a module; give both"
        )
    if baseline.module is not None:
        raise SpeclaError(f"baseline.module={show(baseline.module)}: baselines of your own are not built yet")


def missing_inputs(settings: Settings) -> dict[str, str]:
    """By group: what it lacks that only the user can give, and what to do."""
    model, workload, topology, drafter = settings.model, settings.workload, settings.topology, settings.drafter
    missing = {}
    if model.weights == "checkpoint" and model.path is None:
        missing["model"] = (
            f"model.path=null: model={model.name} has no bundled weights; "
            "give model.path=FOLDER, or model.weights=random to time its shape"
        )
    if workload.name in ("gsm8k", "spec-bench") and workload.path is None:
        missing["workload"] = f"workload.path=null: {workload.name} is not bundled; give workload.path=FILE"
    if workload.name == "dataset" and (workload.path is None) == (workload.dataset is None):
        missing["workload"] = (
            f"workload.path={show(workload.path)}, workload.dataset={show(workload.dataset)}: "
            "give one of them, a file or the name of a data set"
        )
    if topology.name == "explicit" and topology.parents is None:
        missing["topology"] = "topology.parents=null: topology=explicit needs them, as in 'topology.parents=[-1,0,0,1]'"
    if drafter.name == "aligned" and drafter.path is None:
        missing["drafter"] = "drafter.path=null: drafter=aligned needs a folder that `specla train drafter` wrote"
    if drafter.name == "oracle" and drafter.alpha is None and drafter.profile is None:
        missing["drafter"] = "drafter.alpha=null: drafter=oracle needs drafter.alpha or drafter.profile"
    return missing


def show(value: Any) -> str:
    """A value as the command line spells it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(show(inner) for inner in value)}]"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def located(name: str) -> str:
    """The file that a name means: as it is typed where there is one, else with `~` expanded."""
    return name if os.path.exists(name) else os.path.expanduser(name)


def escaped(text: str) -> str:
    """A text that fits a line: what cannot be printed is escaped, and the rest is as it was."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _validate_model(settings: Settings) -> None:
    model = settings.model
    if model.num_v_heads % model.num_heads:
        raise SpeclaError(
            f"model.num_v_heads={model.num_v_heads}: give a multiple of model.num_heads={model.num_heads}"
        )
    if not float(model.head_dim * model.expand_v).is_integer():
        raise SpeclaError(
            f"model.expand_v={show(model.expand_v)}: times model.head_dim={model.head_dim} it is no whole number"
        )


def _validate_drafter(settings: Settings) -> None:
    drafter = settings.drafter
    if drafter.max_ngram is not None and drafter.min_ngram is not None and drafter.min_ngram > drafter.max_ngram:
        raise SpeclaError(f"drafter.min_ngram={drafter.min_ngram}: is over drafter.max_ngram={drafter.max_ngram}")
    if drafter.alpha is None:
        return
    alpha = drafter.alpha
    rows = alpha if isinstance(alpha, tuple) else (alpha,)
    shares = [row if isinstance(row, tuple) else (row,) for row in rows]
    if not shares or not all(shares) or any(not isinstance(share, float) for row in shares for share in row):
        raise SpeclaError(
            f"drafter.alpha={show(alpha)}: give a share, a list with one a depth, or a list of lists [depth][rank]"
        )
    if any(not 0 <= share <= 1 for row in shares for share in row):
        raise SpeclaError(f"drafter.alpha={show(alpha)}: a share accepted is from 0 to 1")
    if any(sum(row) > 1 + 1e-9 for row in shares):
        raise SpeclaError(f"drafter.alpha={show(alpha)}: the shares of one depth sum to at most 1")
