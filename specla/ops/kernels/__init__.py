"""Triton kernels, one a file, and nothing else: what the strategies and layers run for tensors on a GPU.

A kernel's file holds the kernel and the function that launches it, on plain tensors. Its caller imports it when the
first CUDA tensor arrives: `import specla` imports no Triton, so machines without it run the torch forms.
"""
