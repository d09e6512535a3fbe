"""What kernels refuse, before they read past an end or take bytes for something else: one clear line each."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from specla.errors import SpeclaError
from specla.ops.kernels import commit, gated_norm, node_inputs, pick, replay, ring, window
from specla.ops.kernels.launch import Taken
from specla.ops.kernels.tree import MOST_PLACES, verify_tree
from specla.ops.kernels.walk import Pending, verify_chain, verify_hybrid, verify_sequentially
from specla.ops.types import Factors, Filled, HeadShape, Moving, NodeInputs, TreeTensors
from specla.topology import chain, kary
from tests.ops import cases

SHAPE = HeadShape(1, 2, 32, 16)
ROWS, NODES, PLACES = 2, 3, 4
Change = Callable[[dict[str, Any]], dict[str, Any]]


def parts() -> dict[str, Any]:
    """What a verification and a commit take, all of it right."""
    generator = torch.Generator().manual_seed(3)
    inputs = cases.node_inputs(ROWS, NODES, SHAPE, generator)
    known = cases.known_factors(torch.ones(ROWS, PLACES, dtype=torch.bool), SHAPE, generator)
    factors = Factors(inputs.k, torch.randn(inputs.v.shape, generator=generator), inputs.g.double().cumsum(1))
    return {
        "state": cases.random_state(ROWS, SHAPE, generator),
        "inputs": inputs,
        "tree": TreeTensors.from_tree(chain(NODES - 1)),
        "known": known,
        "fold": torch.tensor([True, False]),
        "factors": factors,
        "taken": Taken(torch.tensor([[0, 1, 2]] * ROWS), torch.tensor([3, 1])),
        "moving": Moving(torch.randn(ROWS, 3, 40, generator=generator), torch.randn(ROWS, NODES, 40)),
    }


def of(name: str, field: str, how: Callable[[Any], Any]) -> Change:
    """One field of a part changed."""
    return lambda p: {**p, name: p[name]._replace(**{field: how(getattr(p[name], field))})}


def of_known(field: str, how: Callable[[Any], Any]) -> Change:
    """One factor of the known ones changed."""
    return of("known", "factors", lambda factors: factors._replace(**{field: how(getattr(factors, field))}))


def put(name: str, how: Callable[[Any], Any]) -> Change:
    """A whole part changed."""
    return lambda p: {**p, name: how(p[name])}


def ancestors_of_bytes(tree: TreeTensors) -> TreeTensors:
    return TreeTensors(tree.trees, tree.parents, tree.depths, tree.ancestors.long(), tree.taps)


def valid(shape: tuple[int, ...], dtype: torch.dtype) -> Change:
    return of("known", "valid", lambda _: torch.ones(shape, dtype=dtype))


PENDING: dict[str, Change] = {
    "fold of torch.int64: kernels take bool": put("fold", torch.Tensor.long),
    r"fold of \(1,\): kernels take \(2,\)": put("fold", lambda fold: fold[:1]),
    "the mask of known factors of torch.int64": valid((ROWS, PLACES), torch.int64),
    r"the mask of known factors of \(2, 3\): kernels take \(2, 4\)": valid((ROWS, 3), torch.bool),
    r"known counts of \(1,\): kernels take \(2,\)": valid((1,), torch.int64),
    r"known k of \(2, 4, 1, 16\): kernels take \(2, 4, 1, 32\)": of_known("k", lambda k: k[..., :16]),
    r"known k of \(2, 4, 3, 32\)": of_known("k", lambda k: k.expand(-1, -1, 3, -1)),
    r"known u of \(2, 4, 2, 8\)": of_known("u", lambda u: u[..., :8]),
    "known u of torch.float16": of_known("u", torch.Tensor.half),
    r"known decay of \(2, 2, 2\)": of_known("decay", lambda decay: decay[:, :2]),
    "known nodes of torch.float32": of("known", "nodes", lambda _: torch.zeros(ROWS, 2)),
    "tensors on cpu and meta": of_known("k", lambda k: k.to("meta")),
    "ancestors of torch.int64": put("tree", ancestors_of_bytes),
    r"a state of \(2, 2, 16\): kernels take": put("state", lambda state: state[..., 0]),
    "tensors on cpu and meta: kernels take those of one device": of("inputs", "v", lambda v: v.to("meta")),
}


@pytest.mark.parametrize("message", PENDING)
@pytest.mark.parametrize("kernel", ["tree", "chain"])
def test_verification(kernel: str, message: str) -> None:
    p = PENDING[message](parts())
    pending = (p["known"], p["fold"]) if kernel == "tree" else (Pending(p["known"], p["fold"]),)
    with pytest.raises(SpeclaError, match=message):
        (verify_tree if kernel == "tree" else verify_chain)(p["state"], p["inputs"], p["tree"], *pending)


def test_no_nodes() -> None:
    p = parts()
    inputs = NodeInputs(*(x[:, :0] for x in p["inputs"]))
    with pytest.raises(SpeclaError, match="no nodes: kernels take one or more"):
        verify_chain(p["state"], inputs, p["tree"])


def test_a_ring_beyond_what_fits() -> None:
    p, generator = parts(), torch.Generator().manual_seed(4)
    known = cases.known_factors(torch.ones(ROWS, MOST_PLACES + 1, dtype=torch.bool), SHAPE, generator)
    with pytest.raises(SpeclaError, match="257 known factors of a row: the tree's kernels take up to 256 at once"):
        verify_tree(p["state"], p["inputs"], p["tree"], known)


def test_trees_that_walks_cannot_take() -> None:
    p = parts()
    fork, each = TreeTensors.from_tree(kary(2, NODES)), TreeTensors.from_rows([chain(2), kary(2, NODES)])
    with pytest.raises(SpeclaError, match="a tree that branches: this kernel walks chains"):
        verify_chain(p["state"], p["inputs"], fork)
    for walk in (verify_hybrid, verify_sequentially):
        with pytest.raises(SpeclaError, match="a tree for every row: this kernel takes one that all rows share"):
            walk(p["state"], p["inputs"], each)


COMMITS: dict[str, Change] = {
    r"k of \(2, 3, 1, 16\): kernels take \(2, 3, 1, 32\)": of("factors", "k", lambda k: k[..., :16]),
    "k of torch.int32": of("factors", "k", torch.Tensor.int),
    r"u of \(2, 3, 2, 8\)": of("factors", "u", lambda u: u[..., :8]),
    r"u of \(1, 3, 2, 16\)": of("factors", "u", lambda u: u[:1]),
    r"decay of \(2, 2, 2\)": of("factors", "decay", lambda decay: decay[:, :2]),
    r"paths of \(2, 0\) for 2 rows": of("taken", "path", lambda path: path[:, :0]),
    r"their lengths of \(1,\): kernels take \(2,\)": of("taken", "length", lambda length: length[:1]),
    "paths of torch.float32": of("taken", "path", torch.Tensor.float),
    r"a window of \(1, 3, 40\) and inputs of \(2, 3, 40\)": of("moving", "window", lambda x: x[:1]),
    r"a window of \(2, 3, 40\) and inputs of \(2, 3, 39\)": of("moving", "raw", lambda x: x[..., :39]),
}


@pytest.mark.parametrize("message", COMMITS)
def test_commits(message: str) -> None:
    p = COMMITS[message](parts())
    with pytest.raises(SpeclaError, match=message):
        commit.commit_factors(p["state"], p["factors"], p["taken"], p["moving"])


@pytest.mark.parametrize("kernel", ["commit", "replay", "pick", "move"])
def test_rows_that_are_no_whole_layers(kernel: str) -> None:
    p = parts()
    taken = Taken(torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, dtype=torch.int64))
    launches: dict[str, Callable[[], Any]] = {
        "commit": lambda: commit.commit_factors(p["state"], p["factors"], taken),
        "replay": lambda: replay.replay(p["state"], p["inputs"], taken),
        "pick": lambda: pick.pick_state(p["state"], p["state"][:, None].clone(), taken),
        "move": lambda: window.move(p["moving"], *taken[:2]),
    }
    with pytest.raises(SpeclaError, match=r"paths of \(3, 1\) for 2 rows"):
        launches[kernel]()


def test_replay_and_pick() -> None:
    p = parts()
    with pytest.raises(SpeclaError, match=r"k of \(2, 3, 1, 16\)"):
        replay.replay(p["state"], p["inputs"]._replace(k=p["inputs"].k[..., :16]), p["taken"])
    states = torch.randn(ROWS, NODES, *p["state"].shape[1:])
    with pytest.raises(SpeclaError, match=r"states of torch\.float16: kernels take float32"):
        pick.pick_state(p["state"], states.half(), p["taken"])
    with pytest.raises(SpeclaError, match=r"states of \(2, 3, 2, 8, 32\)"):
        pick.pick_state(p["state"], states[..., :8, :], p["taken"])


def test_states_of_nodes_that_are_views_are_copied(device: torch.device) -> None:
    p = parts()
    states = torch.randn(ROWS, NODES, 2, 32, 16).mT
    taken, state = Taken(*(x.to(device) for x in p["taken"][:2])), p["state"].to(device)
    pick.pick_state(state, states.to(device), taken)
    assert torch.equal(state.cpu(), torch.stack([states[0, 2], states[1, 0]]))


RINGS: dict[str, Change] = {
    "a ring's u with strides": of("ring", "u", lambda u: u.mT.contiguous().mT),
    "a ring's decay of torch.float32: kernels take float64": of("ring", "decay", torch.Tensor.float),
    "a ring's k of torch.float16: kernels take float32": of("ring", "k", torch.Tensor.half),
    r"a ring's u of \(2, 6, 3, 16\): kernels take \(2, 6, 2, 16\)": of("ring", "u", lambda _: torch.zeros(2, 6, 3, 16)),
    "fold of torch.int64: kernels take bool": of("filled", "fold", torch.Tensor.long),
    r"places in use of \(1,\)": of("filled", "used", lambda used: used[:1]),
}


@pytest.mark.parametrize("message", RINGS)
def test_rings(message: str) -> None:
    p = parts()
    p["ring"] = Factors(*(torch.zeros(ROWS, 6, *x.shape[2:], dtype=x.dtype) for x in p["factors"]))
    p["filled"] = Filled(torch.zeros(ROWS, dtype=torch.int64), torch.zeros(ROWS, dtype=torch.bool))
    p = RINGS[message](p)
    with pytest.raises(SpeclaError, match=message):
        ring.append(p["ring"], p["factors"], p["taken"], p["filled"], NODES)


def neighbours() -> dict[str, Any]:
    """What `node_inputs` takes, all of it right."""
    channels = 2 * SHAPE.heads * SHAPE.key_size + SHAPE.value_heads * SHAPE.value_size
    gates = torch.randn(ROWS, NODES, SHAPE.value_heads), torch.randn(ROWS, NODES, SHAPE.value_heads)
    ones = torch.ones(SHAPE.value_heads)
    return {
        "raw": torch.randn(ROWS, NODES, channels),
        "gates": gates,
        "window": torch.randn(ROWS, 3, channels),
        "taps": TreeTensors.from_tree(chain(NODES - 1)).taps,
        "weights": node_inputs.Weights(torch.randn(channels, 4), None, ones, ones),
        "heads": node_inputs.Heads(SHAPE.heads, SHAPE.value_heads, SHAPE.key_size, SHAPE.value_size),
    }


INPUTS: dict[str, Change] = {
    r"raw inputs of \(2, 3, 95\): kernels take \(2, 3, 96\)": put("raw", lambda raw: raw[..., :95]),
    "raw inputs of torch.float64": put("raw", torch.Tensor.double),
    "a window of torch.float16: kernels take float32": put("window", torch.Tensor.half),
    r"a window of \(1, 3, 96\)": put("window", lambda window: window[:1]),
    r"taps of \(1, 2, 3\)": put("taps", lambda taps: taps[:, :2]),
    r"projection b of \(2, 3, 1\)": put("gates", lambda gates: (gates[0], gates[1][..., :1])),
    r"a_log of \(1,\)": of("weights", "a_log", lambda x: x[:1]),
}


@pytest.mark.parametrize("message", INPUTS)
def test_inputs_of_nodes(message: str) -> None:
    with pytest.raises(SpeclaError, match=message):
        node_inputs.node_inputs(**INPUTS[message](neighbours()))


def test_inputs_of_nodes_may_be_views() -> None:
    p = neighbours()
    found = node_inputs.node_inputs(**p)
    views = {name: p[name].mT.contiguous().mT for name in ("raw", "window")}
    a, b = (x.mT.contiguous().mT for x in p["gates"])
    assert all(map(torch.equal, found, node_inputs.node_inputs(**{**p, **views, "gates": (a, b)})))


def test_the_gated_norm() -> None:
    out, gate, weight = torch.randn(ROWS, NODES, 2, 16), torch.randn(ROWS, NODES, 32), torch.ones(16)
    ways: dict[str, Any] = {
        "activation 'relu': the gated norm's kernel takes swish, silu or sigmoid": (out, gate, weight, 1e-5, "relu"),
        r"the norm's weight of \(8,\)": (out, gate, weight[:8], 1e-5, "silu"),
        r"the output gate of \(2, 3, 31\)": (out, gate[..., :31], weight, 1e-5, "silu"),
        "the delta rule's output of torch.float64": (out.double(), gate, weight, 1e-5, "silu"),
    }
    for message, taken in ways.items():
        with pytest.raises(SpeclaError, match=message):
            gated_norm.gated_rms_norm(*taken, torch.float32)
    right = gated_norm.gated_rms_norm(out, gate, weight, 1e-5, "silu", torch.float32)
    views = gated_norm.gated_rms_norm(out, gate.mT.contiguous().mT, weight, 1e-5, "silu", torch.float32)
    assert torch.equal(right, views)
