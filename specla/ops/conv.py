"""The causal depthwise short convolution of q, k and v: on a tree, on a sequence, and the window kept between steps.

Sums run in float32 and are rounded to x's dtype once. Any width works; `window` holds the W-1 newest committed inputs,
oldest first.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specla.ops.rows import repeat_rows, take_nodes
from specla.ops.types import Moving, places_of


def conv_nodes(x: Tensor, window: Tensor, weight: Tensor, bias: Tensor | None, taps: Tensor) -> Tensor:
    """Convolve every node with its nearest ancestors, then the committed window.

    Args:
        x: [B, T, C], the nodes' raw inputs.
        window: [B, W-1, C].
        weight: [C, W].
        bias: [C] or None.
        taps: [1 or B, T, W-1] int64, from `TreeTensors`.

    Returns:
        silu of the convolution, [B, T, C] in x's dtype.
    """
    return conv_places(torch.cat((window, x), dim=1), weight, bias, places_of(taps))


def conv_places(seen: Tensor, weight: Tensor, bias: Tensor | None, places: Tensor) -> Tensor:
    """Convolve what lies at some places.

    Args:
        seen: [B, S, C], raw inputs.
        weight: [C, W].
        bias: [C] or None.
        places: [1 or B, T, W] int64, what each of T tokens reads, oldest first.

    Returns:
        silu of the convolution, [B, T, C] in the dtype of `seen`.
    """
    batch, _, channels = seen.shape
    if places.shape[0] == 1:
        taken = seen.index_select(1, places.flatten()).view(batch, *places.shape[1:], channels)
    else:
        taken = seen[torch.arange(batch, device=seen.device)[:, None, None], places]
    # The kernel's W x C layout keeps the products contiguous in C.
    y = (taken.float() * weight.t().float()).sum(2)
    return F.silu(y if bias is None else y.add_(bias), inplace=True).to(seen.dtype)


def conv_sequence(x: Tensor, window: Tensor | None, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Convolve consecutive tokens; differentiable.

    Args:
        x: [B, T, C].
        window: [B, W-1, C], or None for zeros (the start of a text).
        weight: [C, W].
        bias: [C] or None.

    Returns:
        (silu of the convolution [B, T, C] in x's dtype, the window after the last token [B, W-1, C]).
    """
    tokens, width = x.shape[1], weight.shape[1]
    seen = F.pad(x, (0, 0, width - 1, 0)) if window is None else torch.cat((window.to(x.dtype), x), dim=1)
    wide, weight = seen.float(), weight.float()
    # Shifted products, not conv1d: they need no transpose, train faster on a CPU and fuse into one kernel on a GPU.
    y = wide[:, :tokens] * weight[:, 0]
    for j in range(1, width):
        y = y + wide[:, j : j + tokens] * weight[:, j]
    if bias is not None:
        y = y + bias.float()
    return F.silu(y).to(x.dtype), seen[:, tokens:].clone()


def commit_window(window: Tensor, x: Tensor, path: Tensor, length: Tensor) -> Tensor:
    """The window after the accepted path: the last W-1 of (old window, then accepted inputs).

    Args:
        window: [B, W-1, C]; it is not written.
        x: [B, T, C], the nodes' raw inputs.
        path: [B, L] int64, nodes from the root down; any valid node past length[b]. Where layers are stacked in B, one
            layer's rows are enough.
        length: [B] int64; zero keeps the row's window.

    Returns:
        The new window, [B, W-1, C] in the window's dtype.
    """
    kept = window.shape[1]
    path, length = repeat_rows(path, window.shape[0]), repeat_rows(length, window.shape[0])
    places = length[:, None] + torch.arange(kept, device=window.device)
    accepted = path.gather(1, (places - kept).clamp(0, path.shape[1] - 1)) + kept
    places = torch.where(places < kept, places, accepted)
    return take_nodes(torch.cat((window, x.to(window.dtype)), dim=1), places)


def move_window(moving: Moving | None, path: Tensor, length: Tensor) -> None:
    """`commit_window` in place; None moves nothing."""
    if moving is None:
        return
    if moving.window.is_cuda:
        from specla.ops.kernels.window import move

        move(moving, path, length)
    else:
        moving.window.copy_(commit_window(moving.window, moving.raw, path, length))
