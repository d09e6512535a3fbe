"""Kernels in Triton, one file each, and nothing else in the package imports Triton.

A file holds its kernels, then the function that checks what they can take and launches them. The strategies of `verify`
and `recover` import a file when they first see a tensor on a GPU; Triton's interpreter runs the same kernels on a CPU.
"""
