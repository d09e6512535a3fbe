"""What fuzzing starts from: right inputs of every kind, and what has broken readers before."""

import gzip
import json
import struct
import tempfile
from functools import cache
from pathlib import Path

from tests.fuzz.targets import PROMPT_ENDINGS, SEPARATOR

_OVERRIDES = (
    "",
    "model=gdn-mini\ntopology=kary\ntopology.nodes=8,16\nengine.verify=tree,hybrid",
    "topology=explicit\ntopology.parents=[-1,0,0,1]",
    "drafter=oracle\ndrafter.alpha=[[0.6,0.2],[0.5]]",
    "drafter=ngram\ndrafter.max_ngram=range(2,5)",
    "experiment=smoke",
    "topology.length=range(0,10000000)",
    "topology.length=range(1,5,0)",
    "topology.length=range(5,1)",
    "topology.length=range(1,3),4",
    "topology.length=shuffle(range(1,1000000000000))",
    "topology.parents=" + "[" * 60 + "]" * 60,
    "topology.parents=" + "[" * 500 + "]" * 500,
    "drafter.alpha=" + "{a:" * 60 + "1" + "}" * 60,
    "seed=" + "9" * 5000,
    "a" * 5000 + "=1",
    "model.path='\x1b[2J'",
    "model.path=/x/epoch=3-step=100",
    "model.path=${oc.env:HOME}",
    "seed=${seed}",
    "sampling.temperature=nan",
    "workload.batch=9223372036854775807",
    "model=glob(*)",
    "+seed=1",
    "~drafter",
    "seed=1\nseed=2",
    "model.path=a,b,'c,d'",
    "workload.categories=[ä,'ö ü']",
)
_TOPOLOGY = (
    "[-1]",
    "[-1,0,0,1,1,2]",
    "[]",
    "[0]",
    "[-1,-1]",
    "[-1,0.5]",
    "[-1,true]",
    "[-1,null]",
    "[[-1]]",
    "{}",
    "1e400",
)
_CONFIG = {
    "model_type": "gated_deltanet",
    "vocab_size": 5,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_heads": 1,
    "head_dim": 2,
    "expand_v": 1.0,
    "intermediate_size": 2,
}
_INDICES = (
    '{"weight_map": {"a": "model.safetensors"}}',
    '{"weight_map": {"a": "../../etc/passwd"}}',
    '{"weight_map": {"a": "/etc/passwd"}}',
    '{"weight_map": {"a": ""}}',
    '{"weight_map": {"a": "."}}',
    '{"weight_map": {"a": "\\u0000"}}',
    '{"weight_map": {"a": 1}}',
    '{"weight_map": []}',
    "[" * 2000,
)
_PACKED = gzip.compress(b'{"prompt": "a"}\n', mtime=0)
_PROMPTS: dict[str, tuple[bytes, ...]] = {
    ".jsonl": (
        b'{"prompt": "a"}\n{"prompt": "b"}\n',
        b'{"prompt": "2024-01-01"}\n{"prompt": "2024-01-02"}\n',
        b'{"id": null, "prompt": "a", "category": ""}\n',
        b'{"conversations": [{"from": "human", "value": "a"}]}\n',
        b'{"prompt": "\\ud800"}\n',
        b'{"prompt": "a"}\n{"prompt": 1}\n',
        b'{"prompt": "a"}\n[1]\n',
        b"[" * 3000,
    ),
    ".json": (b'[{"prompt": "a"}]', b'{"data": [{"prompt": "a"}]}', b"{}", b"[]", b"[1, 2]", b'"a"'),
    ".csv": (
        b"prompt\nnull\nNA\n12\n",
        b"prompt\n",
        b'prompt,category\n"a\nb",x\n',
        b"\xef\xbb\xbfprompt\na\n",
        b'prompt\n"',
    ),
    ".tsv": (b"prompt\tcategory\na\tb\n",),
    ".txt": (b"a\nb\n", b"\xef\xbb\xbfa\n", b"\x00", b"\xff\xfea\x00"),
    ".parquet": (b"PAR1PAR1", b"PAR1" + b"\xff" * 16 + b"PAR1"),
    ".jsonl.gz": (
        gzip.compress(b'{"prompt": "a"}\n', mtime=0),
        b"\x1f\x8b",
        gzip.compress(b'{"prompt": "a"}\n', mtime=0)[:-6],
    ),
}


@cache
def seeds(target: str) -> tuple[bytes, ...]:
    """Of a target, by its name."""
    return tuple(_MAKERS[target]())


def _topology() -> list[bytes]:
    deep = ["[-1," + ",".join(map(str, range(count))) + "]" for count in (127, 128)]
    return [text.encode() for text in (*_TOPOLOGY, *deep)] + [b"\xff", b"\xff\x00\x00\x01", b""]


def _records() -> list[bytes]:
    from specla.bench.record import to_json
    from tests.factory import ar_record, decode_record

    lines = [to_json(ar_record()).encode(), to_json(decode_record()).encode()]
    whole = b"\n".join(lines) + b"\n"
    data = json.loads(lines[1])
    changed = [
        {**data, "schema": 10**400},
        {**data, "samples": [[]]},
        {**data, "batch": -1},
        {**data, "method": None},
        {**data, "counts": {**data["counts"], "accepted": 10**6}},
    ]
    return [
        *(
            whole,
            whole[:-40],
            lines[0],
            b"",
            b"\n\n",
            b"{}\n",
            b"null\nnull\n",
            b"[" * 3000 + b"\n\n",
            b"\xff\xfe\n" + whole,
        ),
        *(json.dumps(one).encode() + b"\n" for one in changed),
    ]


def _checkpoint() -> list[bytes]:
    from safetensors.torch import save

    from specla.models.config import GatedDeltaNetConfig
    from specla.models.gated_deltanet import GatedDeltaNetLM

    model = GatedDeltaNetLM(GatedDeltaNetConfig.from_hf(_CONFIG, "seed"))
    weights = save({name: tensor.detach() for name, tensor in model.state_dict().items()})
    config = json.dumps(_CONFIG).encode()
    (length,) = struct.unpack("<Q", weights[:8])
    header = json.loads(weights[8 : 8 + length])
    name = next(name for name in header if name != "__metadata__")

    def with_header(**changes: object) -> bytes:
        text = json.dumps({**header, name: {**header[name], **changes}}).encode()
        return struct.pack("<Q", len(text)) + text + weights[8 + length :]

    files = [
        *(weights, weights[:-1], weights[:100], b"", struct.pack("<Q", 2**60) + weights[8:], b"\x80\x04pickle"),
        *(
            with_header(dtype="I8"),
            with_header(shape=[2**60]),
            with_header(data_offsets=[0, 2**60]),
            with_header(shape=[]),
        ),
    ]
    configs = [
        {**_CONFIG, **change}
        for change in (
            *({"num_hidden_layers": 2.7}, {"num_hidden_layers": 10**9}, {"hidden_size": -4}, {"vocab_size": "5"}),
            *(
                {"vocab_size": 10**400},
                {"expand_v": "nan"},
                {"head_dim": None},
                {"eos_token_id": [1, 2]},
                {"norm_eps": 0},
            ),
        )
    ]
    broken = [b"", b"[" * 3000, b"{", b"[]", b"\xff", *(json.dumps(one).encode() for one in configs)]
    return [
        *(config + SEPARATOR + file for file in files),
        *(text + SEPARATOR + weights for text in broken),
        *(config + SEPARATOR + weights + SEPARATOR + text for text in (_tokenizer(), b"{}", b"[" * 3000)),
    ]


def _tokenizer() -> bytes:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        Tokenizer(WordLevel({"a": 0, "text": 1}, unk_token="a")).save(str(file))
        return file.read_bytes()


def _prompts() -> list[bytes]:
    kinds = ((bytes([PROMPT_ENDINGS.index(ending)]), files) for ending, files in _PROMPTS.items())
    return [b"", *(kind + file for kind, files in kinds for file in files)]


_MAKERS = {
    "overrides": lambda: [text.encode() for text in _OVERRIDES],
    "topology": _topology,
    "records": _records,
    "checkpoint": _checkpoint,
    "checkpoint_index": lambda: [text.encode() for text in _INDICES],
    "prompts": _prompts,
}
