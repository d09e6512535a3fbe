"""What the models of several records are called, so that two are never taken for one."""

from collections.abc import Sequence

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

    An operation has the name of its option, or of the one model that was decoded by that option in the same shape.
    """
    called: dict[tuple[object, ...], str] = {}
    for record in records:
        called.setdefault(identity_of(record), _label(record))
    names = [name for identity, name in called.items() if identity[0] != "operation"]
    for identity, name in called.items():
        if names.count(name) > 1 and identity[0] != "operation":
            called[identity] = f"{name}, {_told_by(identity)}"
    decoded: dict[str, set[tuple[str, tuple[int, ...]]]] = {}
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for record in records:
        shape = record.model_info.shape if record.model_info else ()
        if record.is_kernel:
            shapes.setdefault(record.model, set()).add(shape)
        else:
            decoded.setdefault(record.model, set()).add((called[identity_of(record)], shape))
    for option, found in shapes.items():
        labels = {label for label, shape in decoded.get(option, ()) if shape in found}
        if len(labels) == 1:
            called["operation", option] = labels.pop()
    return [called[identity_of(record)] for record in records]


def _label(record: Record) -> str:
    if record.is_kernel:
        return record.model
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
