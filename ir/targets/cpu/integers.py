"""Functions of whole numbers on vectors and scalars of a CPU: bits, quotients, tables, Philox.

Nothing here traps or is undefined: divisors of 0 and -1 and shifts by the width are answered apart.
"""

from __future__ import annotations

from ir.counting import FRACTION, MULTIPLIERS, ROUNDS, STEPS
from ir.targets.cpu.nest import MOST_CHOSEN, Builder, Type, Value

LOW = (1 << 32) - 1


def whole(b: Builder, number: int, like: Value) -> Value:
    return b.constant(number, like.type)


def divided(b: Builder, name: str, x: Value, y: Value) -> Value:
    """floordiv or mod with Python's signs; both are 0 where y is 0."""
    zero, one = whole(b, 0, x), whole(b, 1, x)
    none, turned = b.test("eq", y, zero), b.test("eq", y, whole(b, -1, x))
    divisor = b.select(turned, one, b.select(none, one, y))
    left = b.op("srem", x, divisor)
    # a remainder whose sign is not the divisor's is one divisor short of it
    apart = b.test("lt", b.op("xor", left, divisor), zero)
    short = b.select(b.test("eq", left, zero), zero, b.select(apart, one, zero))
    if name == "mod":
        moved = b.op("iadd", left, divisor, wraps=True)
        return b.select(b.test("eq", short, one), moved, left)
    down = b.op("isub", b.op("sdiv", x, divisor), short, wraps=True)
    found = b.select(turned, b.op("isub", zero, x, wraps=True), down)
    return b.select(none, zero, found)


def shifted(b: Builder, name: str, x: Value, amount: Value, inside: bool) -> Value:
    """x << amount or x >> amount; `inside`: amounts are known to be below the width."""
    op = "shl" if name == "shl" else "ashr"
    if inside:
        return b.op(op, x, amount)
    most = whole(b, 8 * Type(x.type.scalar).bytes - 1, x)
    kept = b.op("and", amount, most)
    same = b.test("eq", kept, amount)
    if name == "shl":
        return b.select(same, b.op(op, x, kept), whole(b, 0, x))
    return b.op(op, x, b.select(same, kept, most))


def popcount(b: Builder, x: Value) -> Value:
    """Counts of pairs, nibbles and bytes, which a product adds up."""
    width = 8 * Type(x.type.scalar).bytes
    masks = [whole(b, _repeated(byte, width), x) for byte in (0x55, 0x33, 0x0F, 0x01)]

    def down(value: Value, bits: int) -> Value:
        return b.op("lshr", value, whole(b, bits, x))

    def plus(left: Value, right: Value) -> Value:
        return b.op("iadd", left, right, wraps=True)

    pairs = b.op("isub", x, b.op("and", down(x, 1), masks[0]), wraps=True)
    nibbles = plus(b.op("and", pairs, masks[1]), b.op("and", down(pairs, 2), masks[1]))
    bytes_ = b.op("and", plus(nibbles, down(nibbles, 4)), masks[2])
    return down(b.op("imul", bytes_, masks[3], wraps=True), width - 8)


def _repeated(byte: int, width: int) -> int:
    return int.from_bytes(bytes([byte] * (width // 8)), "little")


def lookup(
    b: Builder, index: Value, entries: tuple[float, ...], scalar: str, inside: bool = False
) -> Value:
    """The entry at each index, which is moved into the table unless it is known to be `inside`."""
    if not inside:
        last = whole(b, len(entries) - 1, index)
        index = b.op("imin", b.op("imax", index, whole(b, 0, index)), last)
    if index.type.lanes and len(entries) <= MOST_CHOSEN and Type(scalar).bytes == 4:
        return b.chosen(entries, scalar, b.convert(index, "i32"))
    offset = b.convert(index, "i64")
    offset = b.op("imul", offset, whole(b, Type(scalar).bytes, offset))
    table = b.table(entries, scalar)
    if index.type.lanes:
        return b.gather_at(Type(scalar, index.type.lanes), table, offset)
    return b.load(Type(scalar), b.offset(table, offset))


def unit(b: Builder, word: Value) -> Value:
    """The upper bits of a word of 32 as a number of [0, 1)."""
    bits = b.op("lshr", word, whole(b, 32 - FRACTION, word))
    bits = b.convert(b.op("and", bits, whole(b, (1 << FRACTION) - 1, word)), "i32")
    number = b.convert(bits, "f32")
    return b.op("fmul", number, b.constant(2.0**-FRACTION, number.type))


def philox(b: Builder, counter: Value, stream: Value, seed: Value, word: Value) -> Value:
    """See `ir.counting`; words of 32 bits lie in integers of 64."""
    low, up = whole(b, LOW, counter), whole(b, 32, counter)

    def words(value: Value) -> list[Value]:
        return [b.op("and", value, low), b.op("lshr", value, up)]

    def mixed(*parts: Value) -> Value:
        return b.op("xor", b.op("xor", parts[0], parts[1]), parts[2])

    state, key = [*words(counter), *words(stream)], words(seed)
    steps = [whole(b, step, counter) for step in STEPS]
    for _ in range(ROUNDS):
        products = [
            b.op("imul", state[place], whole(b, factor, counter), wraps=True)
            for place, factor in zip((0, 2), MULTIPLIERS, strict=True)
        ]
        (low0, high0), (low1, high1) = (words(product) for product in products)
        state = [mixed(high1, state[1], key[0]), low1, mixed(high0, state[3], key[1]), low0]
        key = [
            b.op("and", b.op("iadd", one, step, wraps=True), low)
            for one, step in zip(key, steps, strict=True)
        ]
    return _chosen(b, state, word)


def _chosen(b: Builder, state: list[Value], word: Value) -> Value:
    """The word of a number, of which two bits count."""
    first, second = (
        b.test("eq", b.op("and", word, whole(b, bit, word)), whole(b, bit, word)) for bit in (1, 2)
    )
    pairs = [b.select(first, state[place + 1], state[place]) for place in (0, 2)]
    return b.select(second, pairs[1], pairs[0])
