"""One prompt."""

from dataclasses import dataclass

from specla.models.chat import Turn


@dataclass(frozen=True)
class Prompt:
    """A text to continue.

    Attributes:
        id: unique within its workload.
        category: what kind of text it is; results are also given by category.
        text: the prompt itself; of a conversation, its texts with a blank line between them.
        turns: of a conversation, for a model that has a chat template.
    """

    id: str
    category: str
    text: str
    turns: tuple[Turn, ...] = ()
