"""Triton alone, one file per kernel; what calls them is in the folder above."""
