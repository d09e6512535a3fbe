"""Speculative decoding on gated-delta-net models: strategies, benchmarks and a report."""

__version__ = "0.1.0"
