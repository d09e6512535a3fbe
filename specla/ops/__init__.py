"""Tensor operations of gated delta nets: one tree of drafts verified, one accepted path committed.

The letters, in signatures, docstrings and kernels alike (flash-linear-attention's):

    B   rows of a batch (stacked layers may be folded into it)
    T   nodes of a draft tree, root included; tokens of a sequence in `chunk` and `conv_sequence`
    L   places of a path: at most D + 1, D the draft levels of a tree
    R   known factors: committed tokens that the state does not hold yet
    H   key heads                      HV  value heads; HV / H of them share one q and k
    K   size of a key head             V   size of a value head
    C   channels of the short convolution            W   its width
    S   the recurrent state of a head, V x K (value first), float32
    g   log decay of a token, <= 0     G   its sum along a path, since S last took factors in
    b   write strength (`beta`)        u   the delta rule's correction, length V
    A   the ancestor mask: A[i, j] = 1 where node j is a strict ancestor of node i
    BT, BK, BV   block sizes of a kernel over T, K, V; b_ a block, p_ a pointer, o_ offsets, i_ a program's index

A *record* is what verification leaves for recovery; `pairs` says who makes and who needs which. `reference` is the
oracle of every fast form; `verify` and `recover` hold one strategy a file.
"""
