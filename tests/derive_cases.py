"""Diagrams that the tests of the derivations share, written as a user would."""

import diagkit as dk
from diagkit import ops
from diagkit.term import Term

q, x, d, e, h = dk.axes("q x d e h")


def term(*outputs, name="diagram", **variables):
    """The plain value of the diagram that computes `outputs`; wires take the names of the keywords."""
    return Term(*ops.trace(outputs, variables), name)


def attention(name="attention", title="softmax", **options):
    """softmax(Q K) V, with scale, softcap, bias and mask as `dk.attention` has them, blocks unopened."""
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, e)
    S = dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5
    if options.get("softcap"):
        S = dk.tanh(S / options["softcap"]) * options["softcap"]
    if options.get("bias") is not None:
        S = S + options["bias"]
    if options.get("mask") is not None:
        S = dk.masked(S, options["mask"])
    P = ops.block(title, [S], dk.softmax(S, over=x).result)
    O = dk.einsum("q x, x e -> q e", P, V)
    return term(O, name=name, S=S, P=P, O=O)


def softmax_alone():
    """Only the softmax of an array of scores."""
    P = dk.softmax(dk.array("S", q, x), over=x)
    return term(P, name="softmax", P=P)


def matmul():
    """C = A B, summed over x."""
    C = dk.einsum("q x, x e -> q e", dk.array("A", q, x), dk.array("B", x, e))
    return term(C, name="matmul", C=C)


def diamond():
    """A path that leaves A;C through B and comes back."""
    A = dk.exp(dk.array("X", q, x))
    B = dk.softmax(A, over=x)
    C = A * B
    return term(C, name="diamond", A=A, B=B, C=C)


def arrays_for(plain, axis, length, rng):
    """Sizes of all axes, awkward ones, and random inputs: (sizes, arrays)."""
    free = iter((3, 5, 2, 4, 6, 3, 2))
    sizes = {name: length if name == axis else one.length or next(free) for name, one in plain.axes.items()}
    return sizes, {array.name: _values(plain, array, sizes, rng) for array in plain.inputs}


def _values(plain, array, sizes, rng):
    shape = tuple(sizes[one.name] for one in array.axes)
    if array.dtype == "bool":
        return rng.random(shape) < 0.6
    if array.dtype.startswith("int"):
        return rng.integers(0, ops.largest_number(plain, array, sizes), shape)
    return rng.normal(size=shape) * 3


def logsumexp():
    """log sum exp over x of an array of scores."""
    return term(dk.logsumexp(dk.array("S", q, x), over=x, name="L"), name="logsumexp")


def argmax(find=dk.argmax):
    """The position of the largest (smallest) scaled score."""
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d)) * d.size**-0.5
    return term(find(S, over=x, name="A"), name=find.__name__, S=S)


def largest_two(find=dk.topk):
    """The two largest scaled scores, or their positions."""
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d)) * d.size**-0.5
    return term(find(S, over=x, k=2, name="T"), name=find.__name__, S=S)


def at_the_largest():
    """The sum of values where the score is largest: what hard attention gathers."""
    S, V = dk.array("S", q, x), dk.array("V", x)
    return term(dk.total(dk.where(dk.equal(S, dk.amax(S, over=x)), V, 0), over=x, name="R"), S=S)


def reduction(op):
    """One reduction over x of a mapped array."""
    return term(ops.reduce(op, dk.array("X", q, x) * 2 + 1, x, name="R"), name=op)


def mean():
    """The mean over x."""
    return term(dk.mean(dk.array("X", q, x), over=x, name="M"), name="mean")


def variance():
    """The biased variance over x."""
    return term(dk.variance(dk.array("X", q, x), over=x, name="V"), name="variance")


def variance_of_both():
    """The biased variance over h and x together."""
    return term(dk.variance(dk.array("X", q, h, x), over=(h, x), name="V"), name="variance of two axes")


def covariance():
    """The mean product of two deviations."""
    X, Y = dk.array("X", q, x), dk.array("Y", q, x)
    product = (X - dk.mean(X, over=x, name="mx")) * (Y - dk.mean(Y, over=x, name="my"))
    return term(dk.mean(product, over=x, name="C"), name="covariance")


def skew():
    """The third central moment."""
    X = dk.array("X", q, x)
    return term(dk.total((X - dk.mean(X, over=x, name="mean")) ** 3, over=x, name="T"), name="third moment")


def spherical(eps=0.0):
    """Spherical normalisation, contracted with values."""
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d))
    P = dk.spherical(S, over=x, eps=eps)
    O = dk.einsum("q x, x e -> q e", P, dk.array("V", x, e))
    return term(O, name="spherical attention", S=S, P=P, O=O)


def rms_linear(**options):
    """RMSNorm over x with a gain, then a linear layer."""
    N = dk.rms_norm(dk.array("X", q, x), over=x, gain=dk.weight("G", x), **options)
    Y = dk.einsum("q x, x e -> q e", N, dk.weight("W", x, e))
    return term(Y, name="RMSNorm;linear", N=N, Y=Y)


def layer_linear():
    """LayerNorm over x with gain and bias, then a linear layer."""
    N = dk.layer_norm(dk.array("X", q, x), over=x, gain=dk.weight("G", x), bias=dk.weight("B", x))
    Y = dk.einsum("q x, x e -> q e", N, dk.weight("W", x, e))
    return term(Y, name="LayerNorm;linear", N=N, Y=Y)


def layer_alone():
    """LayerNorm over x, nothing after it."""
    return term(dk.layer_norm(dk.array("X", q, x), over=x, name="N"), name="LayerNorm")


def cross_entropy():
    """-log softmax of the target, the classes along x."""
    L = dk.cross_entropy(dk.array("S", q, x), dk.array("t", q, dtype="int64"), over=x, name="L")
    return term(L, name="cross-entropy")


def projected_cross_entropy():
    """The same with logits from a hidden state: they never exist as a whole."""
    S = dk.einsum("q d, x d -> q x", dk.array("H", q, d), dk.weight("W", x, d))
    L = dk.cross_entropy(S, dk.array("t", q, dtype="int64"), over=x)
    return term(L, name="projected cross-entropy", S=S, L=L)


def two_outputs():
    """Attention's result and its logsumexp, both from one pass."""
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d))
    O = dk.einsum("q x, x e -> q e", dk.softmax(S, over=x), dk.array("V", x, e))
    L = dk.logsumexp(S, over=x)
    return term(O, L, name="attention and logsumexp", S=S, O=O, L=L)


def grouped_heads():
    """Grouped-query attention with batch: heads are axes, K and V lack the axis r."""
    b, k, r = dk.axes("b k r")
    Q, K, V = dk.array("Q", b, k, r, q, d), dk.array("K", b, k, x, d), dk.array("V", b, k, x, e)
    S = dk.einsum("b k r q d, b k x d -> b k r q x", Q, K) * d.size**-0.5
    P = dk.softmax(S, over=x)
    O = dk.einsum("b k r q x, b k x e -> b k r q e", P, V)
    return term(O, name="grouped heads", S=S, P=P, O=O)


def whole_attention():
    """The block `attention` with everything in front: scale, soft-cap, bias, causal mask."""
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, e)
    options = {"scale": -0.25, "softcap": 5, "bias": dk.array("B", q, x), "mask": dk.causal(q, x)}
    O = dk.attention(Q, K, V, over=x, features=d, **options)
    return term(O, name="attention block", O=O)


def masked_by(mask):
    """Attention under a mask: a causal one, a window, a boolean array or an added array."""
    masks = {
        "causal": lambda: dk.causal(q, x),
        "bottom-right": lambda: dk.causal(q, x, align="bottom-right"),
        "window": lambda: dk.window(q, x, 2),
        "boolean": lambda: dk.array("M", q, x, dtype="bool"),
    }
    return attention(name=f"{mask} mask", mask=masks[mask]())


def alibi():
    """Attention with a bias made from positions."""
    slope = dk.array("slope", q)
    return attention(name="ALiBi", bias=slope * (dk.index(x) - dk.index(q)))


def dropout():
    """Attention with weights dropped after the softmax."""
    S = dk.array("S", q, x)
    P = dk.select(dk.array("keep", q, x, dtype="bool"), dk.softmax(S, over=x) * 2, 0)
    O = dk.einsum("q x, x e -> q e", P, dk.array("V", x, e))
    return term(O, name="dropout", P=P, O=O)


def narrowed():
    """Attention whose weights are rounded to fp16 before the second contraction."""
    P = dk.cast(dk.softmax(dk.array("S", q, x), over=x), "fp64")
    O = dk.einsum("q x, x e -> q e", P, dk.array("V", x, e))
    return term(O, name="narrowed weights", P=P, O=O)


def by_hand():
    """Softmax attention from primitives, without a block and without any guard."""
    S, V = dk.array("S", q, x), dk.array("V", x, e)
    M = dk.amax(S, x)
    E = dk.exp(S - M)
    Z = dk.total(E, x)
    P = E / Z
    O = dk.einsum("q x, x e -> q e", P, V)
    return term(O, name="by hand", M=M, E=E, Z=Z, P=P, O=O)


def entropy():
    """The entropy of a softmax, from primitives: sum of e (s - m), over z."""
    S = dk.array("S", q, x)
    M = dk.amax(S, x)
    E = dk.exp(S - M)
    Z = dk.total(E, x)
    H = dk.log(Z) - dk.total(E * (S - M), x) / Z
    return term(H, name="entropy", M=M, E=E, Z=Z, H=H)


def over_two_axes():
    """A sum over h and x of what was shifted by the maximum of each h."""
    S = dk.array("S", q, h, x)
    E = dk.exp(S - dk.amax(S, x))
    return term(dk.total(E, over=(h, x), name="T"), name="sum over two axes", E=E)


def joint_softmax():
    """Softmax over h and x together, contracted with values."""
    P = dk.softmax(dk.array("S", q, h, x), over=(h, x))
    O = dk.einsum("q h x, h x e -> q e", P, dk.array("V", h, x, e))
    return term(O, name="joint softmax", P=P, O=O)


def mlp():
    """A linear layer over features after an activation, then a bias: what follows is the tail."""
    X, W, b = dk.array("X", q, x), dk.weight("W", x, e), dk.weight("b", e)
    Y = dk.relu(dk.einsum("q x, x e -> q e", dk.gelu(X), W) + b)
    return term(Y, name="linear layer", Y=Y)


def projected_attention():
    """Attention, and the output projection in the tail."""
    S, V, W = dk.array("S", q, x), dk.array("V", x, e), dk.weight("W", e, d)
    O = dk.einsum("q x, x e -> q e", dk.softmax(S, over=x), V)
    return term(dk.einsum("q e, e d -> q d", O, W, name="Y"), name="projected attention", O=O)


def softmin():
    """Weights exp(min - s), from primitives."""
    S, V = dk.array("S", q, x), dk.array("V", x, e)
    E = dk.exp(dk.amin(S, x, name="n") - S)
    O = dk.einsum("q x, x e -> q e", E / dk.total(E, x, name="Z"), V)
    return term(O, name="softmin", E=E, O=O)


def variance_of_rows():
    """Squared distances from the mean of each row h, summed over all rows."""
    X = dk.array("X", q, h, x)
    return term(dk.total((X - dk.mean(X, over=x, name="mu")) ** 2, over=(h, x), name="T"), name="variance of rows")


def distance_from_the_whole():
    """Squared distances from the mean over h and x, summed over x alone."""
    X = dk.array("X", q, h, x)
    return term(dk.total((X - dk.mean(X, over=(h, x), name="mu")) ** 2, over=x, name="T"), name="from the whole")


def summed_heads():
    """A softmax for each head, contracted over heads and keys at once."""
    P = dk.softmax(dk.array("S", h, q, x), over=x, name="P")
    return term(dk.einsum("h q x, h x e -> q e", P, dk.array("V", h, x, e), name="O"), name="summed heads")


def shared_maximum():
    """exp shifted by the largest maximum of all rows: a reduction of a reduction."""
    S = dk.array("S", q, x)
    top = dk.amax(dk.amax(S, x, name="m"), q, name="top")
    return term(dk.total(dk.exp(S - top), x, name="Z"), name="shared maximum")


def tempered():
    """Attention with a temperature for each query, inside the exponential."""
    S, V, t = dk.array("S", q, x), dk.array("V", x, e), dk.array("t", q)
    E = dk.exp((S - dk.amax(S, x, name="m")) * (t * t + 1))
    O = dk.einsum("q x, x e -> q e", E, V) / dk.total(E, x, name="Z")
    return term(O, name="tempered", E=E, O=O)


def base_two():
    """The same with powers of two."""
    S, V = dk.array("S", q, x), dk.array("V", x, e)
    E = ops.combine(lambda s, m: 2 ** (s - m), S, dk.amax(S, x, name="m"))
    O = dk.einsum("q x, x e -> q e", E / dk.total(E, x, name="Z"), V)
    return term(O, name="base two", E=E, O=O)


def normalised_by(above, below, root=lambda z: z):
    """Weights above(s) over a function of the sum of below(s), contracted with values: no maximum is carried."""
    S, V = dk.array("S", q, x), dk.array("V", x, e)
    P = above(S) / root(dk.total(below(S), x, name="Z"))
    return term(dk.einsum("q x, x e -> q e", P, V, name="O"), name="normalised contraction", P=P)


def summed_scores():
    """Attention without a scale: along the features scores add up, and softmax waits for the whole of them."""
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d))
    return term(dk.einsum("q x, x e -> q e", dk.softmax(S, over=x), dk.array("V", x, e), name="O"), S=S)


FORMS = {
    "attention": (attention, "x", {}),
    "attention, normalised": (attention, "x", {"hoist": False}),
    "logsumexp": (logsumexp, "x", {}),
    "sum": (lambda: reduction("sum"), "x", {}),
    "max": (lambda: reduction("max"), "x", {}),
    "min": (lambda: reduction("min"), "x", {}),
    "product": (lambda: reduction("product"), "x", {}),
    "argmax": (argmax, "x", {}),
    "argmin": (lambda: argmax(dk.argmin), "x", {}),
    "the two largest": (largest_two, "x", {}),
    "where the two largest lie": (lambda: largest_two(dk.argtopk), "x", {}),
    "at the largest": (at_the_largest, "x", {}),
    "mean": (mean, "x", {}),
    "variance": (variance, "x", {}),
    "variance, power sums": (variance, "x", {"lemma": False}),
    "variance of two axes": (variance_of_both, "x", {}),
    "covariance": (covariance, "x", {}),
    "third moment": (skew, "x", {}),
    "spherical": (spherical, "x", {}),
    "spherical, normalised": (spherical, "x", {"hoist": False}),
    "spherical, eps": (lambda: spherical(1e-3), "x", {}),
    "RMSNorm;linear": (rms_linear, "x", {}),
    "RMSNorm;linear, normalised": (rms_linear, "x", {"hoist": False}),
    "LayerNorm;linear": (layer_linear, "x", {}),
    "LayerNorm;linear, power sums": (layer_linear, "x", {"lemma": False}),
    "cross-entropy": (cross_entropy, "x", {}),
    "projected cross-entropy": (projected_cross_entropy, "x", {}),
    "matmul": (matmul, "x", {}),
    "linear layer": (mlp, "x", {}),
    "two outputs": (two_outputs, "x", {}),
    "grouped heads": (grouped_heads, "x", {}),
    "attention block": (whole_attention, "x", {}),
    "causal mask": (lambda: masked_by("causal"), "x", {}),
    "bottom-right mask": (lambda: masked_by("bottom-right"), "x", {}),
    "window mask": (lambda: masked_by("window"), "x", {}),
    "boolean mask": (lambda: masked_by("boolean"), "x", {}),
    "soft-cap": (lambda: attention(softcap=3), "x", {}),
    "added mask": (lambda: attention(bias=dk.array("B", q, x)), "x", {}),
    "ALiBi": (alibi, "x", {}),
    "dropout": (dropout, "x", {}),
    "narrowed weights": (narrowed, "x", {}),
    "by hand": (by_hand, "x", {}),
    "entropy": (entropy, "x", {}),
    "sum over two axes": (over_two_axes, "x", {}),
    "joint softmax": (joint_softmax, "x", {}),
    "joint softmax, normalised": (joint_softmax, "x", {"hoist": False}),
    "projected attention": (projected_attention, "x", {}),
    "softmin": (softmin, "x", {}),
    "variance of rows": (variance_of_rows, "x", {}),
    "variance of rows, power sums": (variance_of_rows, "x", {"lemma": False}),
    "distance from the whole": (distance_from_the_whole, "x", {}),
    "summed heads": (summed_heads, "x", {}),
    "summed heads, normalised": (summed_heads, "x", {"hoist": False}),
    "shared maximum": (shared_maximum, "x", {}),
    "tempered": (tempered, "x", {}),
    "base two": (base_two, "x", {}),
    "sum of magnitudes": (lambda: normalised_by(lambda s: s, dk.absolute), "x", {}),
    "squares of what is positive": (
        lambda: normalised_by(lambda s: dk.relu(s) ** 2, lambda s: dk.relu(s) ** 2, lambda z: z + 1e-3),
        "x",
        {},
    ),
    "softmax without a shift": (lambda: normalised_by(dk.exp, dk.exp), "x", {}),
    "attention along features": (summed_scores, "d", {}),
}
"""Every diagram that must stream: (how to make it, the axis, options of `stream`)."""
