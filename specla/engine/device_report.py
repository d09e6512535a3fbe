"""What a cycle on a device did, for a host that runs ahead of it."""

import torch

from specla.ops.texts import Log, Texts


class Report:
    """What a cycle did, copied to the host beside the cycles after it.

    Args:
        log: of the decoding.
        texts: of it.
        cycle: its place in the log.
        stream: that copies.
    """

    def __init__(self, log: Log, texts: Texts, cycle: int, stream: torch.cuda.Stream) -> None:
        self.done, self._here = torch.cuda.Event(enable_timing=True), torch.cuda.Event()
        self.done.record()
        stream.wait_event(self.done)
        with torch.cuda.stream(stream):
            parts = (log.accepted[cycle], log.kept[cycle], texts.finished)
            self._parts = [torch.empty_like(part, device="cpu", pin_memory=True) for part in parts]
            for place, part in zip(self._parts, parts, strict=True):
                place.copy_(part, non_blocking=True)
            self._here.record()

    def read(self) -> tuple[list[int], list[int], list[bool]]:
        """(accepted drafts, tokens that count, whether it has ended) of every row; waits until they are here.

        A row that ended in one of the next cycles may be said to have ended already.
        """
        self._here.synchronize()
        accepted, kept, finished = (part.tolist() for part in self._parts)
        return accepted, kept, finished
