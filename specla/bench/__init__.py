"""Benchmarks: from what a user types to cells, measurements and records."""
