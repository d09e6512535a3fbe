"""Counter-based Gumbel noise: a pure function of (seed, row, position, token), so drafter and target draw the same.

The generator is Philox4x32-10 (Salmon et al., 2011), which Triton offers too: one block of four 32-bit words serves
four neighbouring tokens.

On a CPU a line of noise takes as long as a small layer, and a position is drawn for many times: by the drafter, by the
target, and again in the next step where its draft was not accepted. So the newest lines are kept.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

_MULTIPLIER_A, _MULTIPLIER_B = 0xD2511F53, 0xCD9E8D57
_WEYL_A, _WEYL_B = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
_ROUNDS = 10
# 23 bits and a half: the largest uniform is 1 - 2^-24, which float32 still tells from 1.
_UNIFORM_STEP = 2.0**-23

KEPT = 64
"""Lines of noise that are kept: some steps of a few rows. A line of 50,000 tokens takes 200 kB."""

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Philox4x32-10: four int64 tensors holding 32-bit words, broadcast against each other, to four such words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high_a, low_a = _multiply(c0, _MULTIPLIER_A)
        high_b, low_b = _multiply(c2, _MULTIPLIER_B)
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = (k0 + _WEYL_A) & _LOW, (k1 + _WEYL_B) & _LOW
    return c0, c1, c2, c3


def _multiply(word: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a product of two 32-bit words, which does not fit a signed 64-bit integer as a whole."""
    low = (word & 0xFFFF) * multiplier
    high = (word >> 16) * multiplier + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def gumbel_noise(seed: int, rows: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """Standard Gumbel noise for every token of a vocabulary.

    Args:
        seed: any integer; its lowest 64 bits count.
        rows: [...] int64, identity of the row (0 or more, below 2^32).
        positions: [...] int64, position of the token to be drawn, prompt included (below 2^32).
        vocabulary: number of tokens.

    Returns:
        [..., vocabulary] float32.
    """
    if is_kept(rows, positions):
        rows, positions = torch.broadcast_tensors(rows, positions)
        places = list(zip(rows.flatten().tolist(), positions.flatten().tolist(), strict=True))
        return _recent.lines(seed, places, vocabulary).view(*rows.shape, vocabulary)
    return _drawn(seed, rows, positions, vocabulary)


def is_kept(rows: Tensor, positions: Tensor) -> bool:
    """Whether `gumbel_noise` keeps the lines of these rows and positions."""
    return rows.device.type == "cpu" and 0 < torch.broadcast_shapes(rows.shape, positions.shape).numel() <= KEPT


def _drawn(seed: int, rows: Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    blocks = torch.arange((vocabulary + 3) // 4, device=rows.device)
    counter = (blocks, positions[..., None], rows[..., None], torch.zeros_like(rows)[..., None])
    words = torch.stack(torch.broadcast_tensors(*philox(counter, (seed & _LOW, (seed >> 32) & _LOW))), dim=-1)
    return _gumbel(words.flatten(-2)[..., :vocabulary])


def gumbel_noise_at(seed: int, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
    """The same noise for chosen tokens alone: rows and positions [...], tokens [..., k] -> [..., k] float32."""
    counter = (tokens >> 2, positions[..., None], rows[..., None], torch.zeros_like(rows)[..., None])
    words = torch.stack(torch.broadcast_tensors(*philox(counter, (seed & _LOW, (seed >> 32) & _LOW))), dim=-1)
    return _gumbel(words.gather(-1, (tokens & 3)[..., None])[..., 0])


class _Recent:
    """The newest lines of noise on the CPU, by what they are a function of."""

    def __init__(self) -> None:
        self._lines: OrderedDict[tuple[int, int, int, int], Tensor] = OrderedDict()

    def lines(self, seed: int, places: Sequence[tuple[int, int]], vocabulary: int) -> Tensor:
        """[places, vocabulary] float32 of (row, position), as many as are kept or fewer."""
        keys = [(seed, vocabulary, *place) for place in places]
        if missing := [key for key in dict.fromkeys(keys) if key not in self._lines]:
            rows, positions = (torch.tensor([key[at] for key in missing]) for at in (2, 3))
            for key, line in zip(missing, _drawn(seed, rows, positions, vocabulary), strict=True):
                # Its own memory: a view would keep the lines drawn with it.
                self._lines[key] = line.clone()
        for key in keys:
            self._lines.move_to_end(key)
        found = torch.stack([self._lines[key] for key in keys])
        while len(self._lines) > KEPT:
            self._lines.popitem(last=False)
        return found

    def clear(self) -> None:
        self._lines.clear()


_recent = _Recent()


def forget_noise() -> None:
    """Drop what is kept: where decodes are timed, none may find what another has drawn."""
    _recent.clear()


def _gumbel(words: Tensor) -> Tensor:
    uniform = ((words >> 9).float() + 0.5) * _UNIFORM_STEP
    return -torch.log(-torch.log(uniform))
