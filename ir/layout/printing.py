"""Expressions as C: fields of one value by one shift and one mask, divisions only by odd numbers.

Sums stay sums: a carry that cannot happen costs nothing, and an addition folds into an address.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.layout.expressions import Atom, Expression, Quotient, Remainder, Variable, Xor


@dataclass(frozen=True)
class _Field:
    """Bits of `source`, moved up by `shift` (down where negative); `mask` is of where they go."""

    source: Expression
    shift: int
    mask: int


def text(value: Expression) -> str:
    """The expression as C text; what is added to or multiplied with it needs parentheses."""
    parts = _parts(value)
    return parts[0] if len(parts) == 1 else _sum(parts)


def summand(value: Expression) -> str:
    """The expression as C text that may be added to others."""
    return _sum(_parts(value))


def _sum(parts: list[str]) -> str:
    return " + ".join(part if _multiplies(part) else _inside(part) for part in parts)


def _parts(value: Expression) -> list[str]:
    """What an expression adds up."""
    parts: list[str] = []
    for piece, mask in _fields(value).items():
        parts.append(_field_text(piece, mask))
    for factor, atom in value.terms:
        if _field(factor, atom) is None:
            own = text(Expression(0, ((1, atom),))) if factor != 1 else _atom_text(atom)
            parts.append(own if factor == 1 else f"{_inside(own)} * {factor}")
    if value.constant or not parts:
        parts.append(str(value.constant))
    return parts


def _fields(value: Expression) -> dict[tuple[Expression, int], int]:
    """(source, shift) -> mask of all fields that one shift moves; the rest is left out."""
    found: dict[tuple[Expression, int], int] = {}
    for factor, atom in value.terms:
        field = _field(factor, atom)
        if field is not None:
            key = (field.source, field.shift)
            found[key] = found.get(key, 0) | field.mask
    return found


def _field(factor: int, atom: Atom) -> _Field | None:
    """factor * atom as bits of one value; None where a division is none by a power of two."""
    if factor < 1 or factor & (factor - 1):
        return None
    up, size = factor.bit_length() - 1, None
    if isinstance(atom, Remainder) and atom.by & (atom.by - 1) == 0:
        size = atom.by - 1
        inner = atom.inner
        single = len(inner.terms) == 1 and inner.terms[0][0] == 1 and not inner.constant
        atom = inner.terms[0][1] if single else _Whole(inner)
    source, down = _value_of(atom), 0
    if isinstance(atom, Quotient) and atom.by & (atom.by - 1) == 0:
        source, down = atom.inner, atom.by.bit_length() - 1
    mask = source.bits >> down
    return _Field(source, up - down, (mask if size is None else mask & size) << up)


@dataclass(frozen=True)
class _Whole(Atom):
    """A sum in the place of an atom."""

    inner: Expression


def _value_of(atom: Atom) -> Expression:
    return atom.inner if isinstance(atom, _Whole) else Expression(0, ((1, atom),))


def _field_text(piece: tuple[Expression, int], mask: int) -> str:
    source, shift = piece
    own = _source_text(source)
    moved = source.bits << shift if shift >= 0 else source.bits >> -shift
    if shift > 0 and moved == mask:
        return f"{_inside(own)} * {1 << shift}"
    if shift:
        own = f"{_inside(own)} {'<<' if shift > 0 else '>>'} {abs(shift)}"
    return own if moved == mask else f"{_inside(own)} & {mask}"


def _source_text(source: Expression) -> str:
    if len(source.terms) == 1 and source.terms[0][0] == 1 and not source.constant:
        return _atom_text(source.terms[0][1])
    return text(source)


def _atom_text(atom: Atom) -> str:
    if isinstance(atom, Variable):
        return atom.name
    if isinstance(atom, Xor):
        return f"{_inside(text(atom.left))} ^ {_inside(text(atom.right))}"
    assert isinstance(atom, Quotient | Remainder)
    sign = "/" if isinstance(atom, Quotient) else "%"
    return f"{_inside(text(atom.inner))} {sign} {atom.by}"


def _inside(own: str) -> str:
    """The text as an operand."""
    return own if own.replace("_", "").isalnum() or _enclosed(own) else f"({own})"


def _enclosed(own: str) -> bool:
    """Whether one pair of parentheses is around all of it."""
    depth = 0
    for at, sign in enumerate(own):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if not depth:
            return at == len(own) - 1 and at > 0
    return False


def _multiplies(own: str) -> bool:
    """Whether a part is a product, which binds before a sum does."""
    depth = 0
    for at, sign in enumerate(own):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if not depth and sign in "+-<>&^|/%" and at:
            return False
    return True
