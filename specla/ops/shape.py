"""Sizes alone, for those who plan and count: no torch."""

from typing import NamedTuple


class HeadShape(NamedTuple):
    """The heads of one layer."""

    heads: int
    value_heads: int
    key_size: int
    value_size: int
