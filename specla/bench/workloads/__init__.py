"""Prompts to decode: bundled held-out text, HumanEval, and files or hub data sets of the user's."""

from specla.bench.workloads.base import load_prompts
from specla.bench.workloads.prompt import Prompt

__all__ = ["Prompt", "load_prompts"]
