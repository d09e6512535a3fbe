"""Small drafters with random weights for small targets."""

import torch

from specla.drafters.network import AlignedNetwork
from specla.models.drafter import AlignedNet, DrafterConfig
from specla.models.drafter_checkpoint import TrainedDrafter
from specla.models.gated_deltanet import GatedDeltaNetLM


def raw_net(target: GatedDeltaNetLM, seed: int = 0) -> AlignedNet:
    """A drafter's network as training holds it; its weights are large, so that every part has a say."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = AlignedNet(DrafterConfig.of(target.config))
        for name, parameter in net.named_parameters():
            if parameter.ndim == 2 or name.endswith("norm.weight"):
                parameter.data += 0.3 * torch.randn_like(parameter)
    return net


def untrained(target: GatedDeltaNetLM, vocabulary: int | None = None, seed: int = 0) -> AlignedNetwork:
    """A drafter that knows nothing."""
    size = target.config.vocab_size
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    return AlignedNetwork(target, TrainedDrafter(raw_net(target, seed), order, size), vocabulary)
