"""What the models of several records are called, so that two are never taken for one."""

from collections import Counter
from collections.abc import Mapping, Sequence

from specla.bench.record import Record
from specla.bench.words import dial_in


def identity_of(record: Record) -> tuple[object, ...]:
    """What makes two cells cells of one model; of records from before models were identified, the words that chose it.

    A single operation runs on random inputs of its option's shape, whatever weights there are.
    """
    info = record.model_info
    if record.is_kernel:
        return ("operation", record.model)
    if info is None or not info.weights:
        return (record.model, *_words(record))
    return (info.weights, info.shape)


def model_labels(records: Sequence[Record]) -> list[str]:
    """What each record's model is called: the same for one model, and different for two.

    Several paths under one option stay apart though they lead to the same weights. An operation has the name of its
    option, or of the one model that was decoded by that option in the same shape.
    """
    decodes = [record for record in records if not record.is_kernel]
    names = _names(decodes)
    ways: dict[tuple[object, ...], set[str]] = {}
    for record in decodes:
        ways.setdefault((record.model, identity_of(record)), set()).add(_words(record)[0])
    operations = _operation_names([record for record in records if record.is_kernel], decodes, names)
    labels = []
    for record in records:
        if record.is_kernel:
            labels.append(operations[record.model])
            continue
        identity, path = identity_of(record), _words(record)[0]
        several = len(ways[record.model, identity]) > 1
        labels.append(names[identity] + (f" at {path or 'the path of its option'}" if several else ""))
    return labels


def _names(decodes: Sequence[Record]) -> dict[tuple[object, ...], str]:
    """A name for each model, told apart where two of them have the same."""
    called: dict[tuple[object, ...], str] = {}
    for record in decodes:
        called.setdefault(identity_of(record), _label(record))
    counts = Counter(called.values())
    return {
        identity: name if counts[name] == 1 else f"{name}, {_told_by(identity)}" for identity, name in called.items()
    }


def _operation_names(
    operations: Sequence[Record], decodes: Sequence[Record], names: Mapping[tuple[object, ...], str]
) -> dict[str, str]:
    """By option; one whose dials an ablation turns keeps its name, and the dials tell its shapes apart."""
    decoded: dict[str, dict[tuple[object, ...], object]] = {}
    for record in decodes:
        decoded.setdefault(record.model, {})[identity_of(record)] = _shape(record)
    shapes: dict[str, set[object]] = {}
    for record in operations:
        shapes.setdefault(record.model, set()).add(_shape(record))
    found = {}
    for option, own in shapes.items():
        models = decoded.get(option, {})
        fits = len(models) == 1 and set(models.values()) <= own
        found[option] = names[next(iter(models))] if fits else option
    return found


def _shape(record: Record) -> object:
    return record.model_info.shape if record.model_info else None


def _label(record: Record) -> str:
    if record.model_info is not None:
        return record.model_info.label
    path, random = _words(record)
    return record.model + f" at {path}" * bool(path) + " (random weights)" * random


def _words(record: Record) -> tuple[str, bool]:
    """The checkpoint's path as typed, and whether random weights were asked for."""
    return dial_in(record.overrides, "model.path"), dial_in(record.overrides, "model.weights") == "random"


def _told_by(identity: tuple[object, ...]) -> str:
    """What tells a model from another of the same name and size."""
    if len(identity) == 3:
        return f"at {identity[1]}" if identity[1] else "weights not told"
    weights, shape = str(identity[0]), identity[1]
    if not weights.startswith("random"):
        return weights
    assert isinstance(shape, tuple)
    layers, hidden, heads, value_heads, key, value, intermediate, vocab, _ = shape
    sizes = f"{layers} layers of {hidden}, heads {heads}/{value_heads} of {key}/{value}"
    return f"{weights}, {sizes}, {intermediate} between, {vocab} tokens"
