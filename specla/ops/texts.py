"""Texts that are decoded on a device without the host: what a cycle reads, and what it leaves for the next."""

from typing import NamedTuple

from torch import Tensor


class Texts(NamedTuple):
    """What is known of every row's text, on the device; written by every cycle."""

    root: Tensor
    """[B] int64, the newest token, not in the state yet."""
    length: Tensor
    """[B] int64, tokens committed."""
    emitted: Tensor
    """[B, capacity] int64, the text so far, the prefill's token first."""
    tokens: Tensor
    """[B] int64, how many those are."""
    finished: Tensor
    """[B] bool."""
    cycle: Tensor
    """[B] int64, cycles so far."""
    rows: Tensor
    """[B] int64, identities in the noise."""


class Log(NamedTuple):
    """What every cycle did, for the counts of a report; cycles past its end are not logged."""

    accepted: Tensor
    """[cycles, B] int16, drafts accepted, before any cut."""
    kept: Tensor
    """[cycles, B] int16, tokens that count."""
    path: Tensor
    """[cycles, B, places] int16, nodes from the root to the accepted one, which is repeated; D + 1 places count."""


class Ends(NamedTuple):
    """When rows end."""

    max_new_tokens: int
    eos: Tensor
    """[E] int64, E >= 0."""


class Walked(NamedTuple):
    """What is committed."""

    path: Tensor
    """[B, D+1] int64."""
    length: Tensor
    """[B] int64; zero where the row has ended."""


class Drafts(NamedTuple):
    """What an oracle drafted in every cycle, so that it can be drafted again whatever it has learnt since."""

    tokens: Tensor
    """[cycles, B, T] int64; cycles past its end are not kept."""
    again: Tensor
    """[1] bool: draft those again, or draft anew and keep it."""


class Traces(NamedTuple):
    """What an oracle knows."""

    text: Tensor
    """[B, capacity] int64, the target's own text, the prefill's token first."""
    length: Tensor
    """[B] int64, how much of it there is."""
    luck: Tensor
    """[B, capacity] float64, the draw that belongs to each place."""
    thresholds: Tensor
    """[depths, ranks] float64, sums of alpha over the ranks up to this one; the last line serves all deeper levels."""
