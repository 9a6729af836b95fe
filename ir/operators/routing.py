"""Mixtures of experts: the gate, which expert gets which rows, and the whole layer.

A slot is one of the experts that a token has chosen. Routed rows are slots sorted by expert.
"""

from __future__ import annotations

import math

from ir import (
    Axis,
    Graph,
    Tile,
    UsageError,
    apply,
    cast,
    contract,
    cumulative,
    exp,
    indices,
    minimum,
    operator,
    reduce,
    scatter,
    sigmoid,
    silu,
    top,
    where,
)

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "moe_gate": {
        "small": {"tokens": 23, "experts": 8, "chosen": 2},
        "small-groups": {
            "tokens": 23, "experts": 12, "chosen": 3, "scores": "sigmoid", "groups": 4, "kept": 2},
        "mixtral-8x7b": {"tokens": 4096, "experts": 8, "chosen": 2, "dtype": "bf16"},
        "deepseek-v3": {
            "tokens": 4096, "experts": 256, "chosen": 8, "scores": "sigmoid", "bias": True,
            "groups": 8, "kept": 4, "scale": 2.5},
    },
    "expert_histogram": {
        "small": {"tokens": 23, "chosen": 2, "experts": 7},
        "deepseek-v3": {"tokens": 4096, "chosen": 8, "experts": 256},
    },
    "moe_positions": {
        "small": {"tokens": 23, "chosen": 2, "experts": 7},
        "deepseek-v3": {"tokens": 4096, "chosen": 8, "experts": 256},
    },
    "moe_permute": {
        "small": {"tokens": 23, "chosen": 2, "experts": 7, "d": 5},
        "mixtral-8x7b": {"tokens": 4096, "chosen": 2, "experts": 8, "d": 4096, "dtype": "bf16"},
        "deepseek-v3": {"tokens": 4096, "chosen": 8, "experts": 256, "d": 7168, "dtype": "bf16"},
    },
    "moe": {
        "small": {"tokens": 13, "experts": 4, "chosen": 2, "d": 9, "n": 7, "block": 4},
        "mixtral-8x7b": {
            "tokens": 4096, "experts": 8, "chosen": 2, "d": 4096, "n": 14336, "block": 128,
            "dtype": "bf16"},
        "deepseek-v3": {
            "tokens": 4096, "experts": 256, "chosen": 8, "d": 7168, "n": 2048, "block": 64,
            "dtype": "bf16"},
    },
}  # fmt: skip


def _scores(logits: Tile, experts: Axis, kind: str) -> Tile:
    """Between 0 and 1, for every expert."""
    if kind == "sigmoid":
        return sigmoid(logits)
    if kind != "softmax":
        raise UsageError(f"moe_gate: scores={kind!r}: known are softmax, sigmoid")
    weights = exp(logits - reduce("max", logits, over=experts))
    return weights / reduce("sum", weights, over=experts)


def _in_kept_groups(g: Graph, ranking: Tile, experts: Axis, groups: int, kept: int) -> Tile:
    """The ranking, -inf outside the `kept` groups of experts whose two best add up to most."""
    if groups < 1 or experts.extent % groups or not 0 < kept <= groups:
        raise UsageError(
            f"moe_gate: groups={groups}, kept={kept}; groups divide experts={experts.extent}, and "
            "1 to all of them are kept"
        )
    size = experts.extent // groups
    group, member, two, rank = g.axes(group=groups, member=size, two=min(2, size), rank=kept)
    best, _ = top(ranking.at(e=group * size + member), member, two)
    _, chosen = top(reduce("sum", best, over=two), group, rank)
    inside = (g.iota(experts) >= chosen * size) & (g.iota(experts) < chosen * size + size)
    kept_ones = reduce("max", where(inside, g.constant(1, "i32"), 0), over=rank)
    return where(kept_ones > 0, ranking, -math.inf)


@operator
def moe_gate(
    g: Graph, tokens: int, experts: int, chosen: int, scores: str = "softmax", bias: bool = False,
    groups: int = 1, kept: int = 1, renormalise: bool = True, scale: float = 1.0,
    dtype: str = "f32",
) -> None:  # fmt: skip
    """weight[t, k], expert[t, k] = the k largest of scores(logits[t]) and where they stand.

    `scores` is softmax or sigmoid; with a `bias` experts are ranked by score + bias, which the
    weights do not contain. With groups, only experts of the `kept` best groups are chosen.
    `renormalise` makes the weights of a token add up to `scale`.
    """
    t, e, k = g.axes(t=tokens, e=experts, k=chosen)
    logits = g.input("logits", (t, e), dtype)
    found = _scores(logits, e, scores)
    ranking = found + g.input("bias", (e,), "f32") if bias else logits
    if groups > 1:
        ranking = _in_kept_groups(g, ranking if bias else found, e, groups, kept)
    _, expert = top(ranking, e, k)
    weight = found.at(e=expert)
    if renormalise:
        weight = weight / reduce("sum", weight, over=k)
    g.output("weight", weight * scale, "f32", (t, k))
    g.output("expert", expert, "i32", (t, k))


def counts_of(expert: Tile, e: Axis) -> Tile:
    """How many slots each expert gets."""
    return scatter("sum", expert.graph.constant(1, "i32"), {e: expert})


def ranks_of(expert: Tile, slot: Axis, e: Axis) -> Tile:
    """For each slot, how many slots before it are of the same expert."""
    one_hot = where(expert == e, expert.graph.constant(1, "i32"), 0)
    return cumulative("sum", one_hot, slot).at({e: expert}) - 1


def before(sizes: Tile, axis: Axis) -> Tile:
    """The sum of all sizes before each point of an axis."""
    return cumulative("sum", sizes, axis) - sizes


@operator
def expert_histogram(g: Graph, tokens: int, chosen: int, experts: int) -> None:
    """count[e] = how many slots of expert[t, k] are e, offset[e] = the sum of the counts before."""
    t, k, e = g.axes(t=tokens, k=chosen, e=experts)
    count = counts_of(g.input("expert", (t, k), "i32", indices(experts)), e)
    g.output("count", count, "i32", (e,))
    g.output("offset", before(count, e), "i32", (e,))


@operator
def moe_positions(g: Graph, tokens: int, chosen: int, experts: int) -> None:
    """position[s] = offset[expert[s]] + how many slots before s have the same expert.

    Where each slot stands in the order of the experts; slots are (token, k), tokens * chosen of
    them. `offset` (experts) is where each expert's rows begin, `slot` the other way round: which
    slot stands at each row.
    """
    s, e, row = g.axes(s=tokens * chosen, e=experts, row=tokens * chosen)
    expert = g.input("expert", (s,), "i32", indices(experts))
    offset = before(counts_of(expert, e), e)
    position = offset.at(e=expert) + ranks_of(expert, s, e)
    g.output("position", position, "i32", (s,))
    g.output("offset", offset, "i32", (e,))
    g.output("slot", scatter("sum", g.iota(s), {row: position}), "i32", (row,))


@operator
def moe_permute(
    g: Graph, tokens: int, chosen: int, experts: int, d: int, dtype: str = "f32"
) -> None:
    """Y[position[t, k]] = X[t]: a copy of each token's row for each of its slots, sorted by expert.

    `position` is that of `moe_positions`, and expert (tokens, chosen) as a list of slots.
    """
    t, k, e = g.axes(t=tokens, k=chosen, e=experts)
    s, row, dd = g.axes(s=tokens * chosen, row=tokens * chosen, d=d)
    expert = g.input("expert", (s,), "i32", indices(experts))
    position = before(counts_of(expert, e), e).at(e=expert) + ranks_of(expert, s, e)
    g.output("position", position, "i32", (s,))
    token = scatter("sum", g.iota(t), {row: position.at(s=t * chosen + k)})
    g.output("Y", g.tensor("X", (tokens, d), dtype)[token, dd], dtype, (row, dd))


def _placed(g: Graph, expert: Tile, axes: tuple[Axis, ...], size: int) -> tuple[Tile, Tile]:
    """Rows in blocks of one expert each: where each slot's row is, and each block's expert.

    `axes` are tokens, slots of a token (which have distinct experts), experts, blocks; a block has
    `size` rows, and an expert's last one may be in part empty.
    """
    t, k, e, block = axes
    hot = reduce("sum", where(expert == e, g.constant(1, "i32"), 0), over=k)
    blocks = apply("shr", reduce("sum", hot, over=t) + (size - 1), size.bit_length() - 1)
    first = before(blocks, e)
    row = first.at(e=expert) * size + before(hot, t).at(e=expert)
    passed = where(first + blocks <= block, g.constant(1, "i32"), 0)
    return row, minimum(reduce("sum", passed, over=e), e.extent - 1)


@operator
def moe(
    g: Graph, tokens: int, experts: int, chosen: int, d: int, n: int, block: int = 64,
    dtype: str = "f32",
) -> None:  # fmt: skip
    """O[t] = sum_k weight[t, k] F(X[t]) of expert[t, k], F(x) = W2 (silu(W1 x) * (W3 x)).

    The layer from its gate's logits (tokens, experts) on: a token's weights are the softmax of its
    `chosen` largest. Rows are sorted by expert into blocks of `block` rows, a power of two; W1 and
    W3 are (experts, n, d), W2 (experts, d, n).
    """
    if block < 1 or block & (block - 1):
        raise UsageError(f"moe: block={block} is no power of two")
    t, e, k, dd, nn, out = g.axes(t=tokens, e=experts, k=chosen, d=d, n=n, out=d)
    blocks, r = g.axes(block=tokens * chosen // block + experts, r=block)
    logits, expert = top(g.input("logits", (t, e), dtype), e, k)
    weight = exp(logits - reduce("max", logits, over=k))
    weight = weight / reduce("sum", weight, over=k)
    row, owner = _placed(g, expert, (t, k, e, blocks), block)
    place = apply("shr", row, block.bit_length() - 1), apply("bitand", row, block - 1)
    token = scatter("sum", g.iota(t), {blocks: place[0], r: place[1]})
    x = g.tensor("X", (tokens, d), dtype)[token, dd]
    w1, w3 = (g.tensor(name, (experts, n, d), dtype)[owner, nn, dd] for name in ("W1", "W3"))
    h = cast(silu(contract(x, w1, over=dd)) * contract(x, w3, over=dd), dtype)
    y = contract(h, g.tensor("W2", (experts, d, n), dtype)[owner, out, nn], over=nn)
    mixed = reduce("sum", weight * y.at(block=place[0], r=place[1]), over=k)
    g.output("O", mixed, dtype, (t, out))
