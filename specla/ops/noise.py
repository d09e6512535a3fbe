"""Counter-based Gumbel noise: a pure function of (seed, row, position, token), so drafter and target draw the same.

The generator is Philox4x32-10 (Salmon et al., 2011), which Triton offers too: one block of four 32-bit words serves
four neighbouring tokens.
"""

import torch
from torch import Tensor

_MULTIPLIER_A, _MULTIPLIER_B = 0xD2511F53, 0xCD9E8D57
_WEYL_A, _WEYL_B = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
_ROUNDS = 10
# 23 bits and a half: the largest uniform is 1 - 2^-24, which float32 still tells from 1.
_UNIFORM_STEP = 2.0**-23


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
    blocks = torch.arange((vocabulary + 3) // 4, device=rows.device)
    counter = (blocks, positions[..., None], rows[..., None], torch.zeros_like(rows)[..., None])
    words = torch.stack(torch.broadcast_tensors(*philox(counter, (seed & _LOW, (seed >> 32) & _LOW))), dim=-1)
    return _gumbel(words.flatten(-2)[..., :vocabulary])


def gumbel_noise_at(seed: int, rows: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
    """The same noise for chosen tokens alone: rows and positions [...], tokens [..., k] -> [..., k] float32."""
    counter = (tokens >> 2, positions[..., None], rows[..., None], torch.zeros_like(rows)[..., None])
    words = torch.stack(torch.broadcast_tensors(*philox(counter, (seed & _LOW, (seed >> 32) & _LOW))), dim=-1)
    return _gumbel(words.gather(-1, (tokens & 3)[..., None])[..., 0])


def _gumbel(words: Tensor) -> Tensor:
    uniform = ((words >> 9).float() + 0.5) * _UNIFORM_STEP
    return -torch.log(-torch.log(uniform))
