"""Evaluates tiles of a program in registers, as text: loads, maps, reductions, stores.

Demand-driven: a value is formed where it is needed, in the frame that all values share. Elementwise
chains become one loop; what is reduced, multiplied or read over fewer axes is kept in registers.
Knows neither tensor cores nor how tiles are handed to blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Now, Prior
from ir.ranges import shifts_inside
from ir.scalar import COMBINES, running_bound
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.readers import (
    behind_decisions,
    gelu_of,
    narrows,
    of_coordinates,
    read_narrowed,
    stated_inverse,
)
from ir.targets.cuda.layouts.frame import Digit
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.coded import looked_up
from ir.targets.cuda.text.combining import Combining
from ir.targets.cuda.text.draws import compared_draw
from ir.targets.cuda.text.even import even_value
from ir.targets.cuda.text.exponents import (
    Ordered,
    Shifted,
    Tangent,
    coarse_tangent,
    exponent_text,
    is_coarse_wave,
    shifted_exponent,
    summed_along,
    tangent_text,
)
from ir.targets.cuda.text.naming import value_name
from ir.targets.cuda.text.quotients import divided
from ir.targets.cuda.text.registers import Fragment, Point, times

LONG_CHAIN = 8  # registers that are combined one after the other, from which on two chains are


class Evaluator(Combining):
    """State of one kernel body; see the module's text.

    `values[~position]` are the reciprocals of a value, where quotients are formed by them.
    """

    side_by_side = False  # whether points are combined in several chains
    kept: frozenset[int] = frozenset()  # elementwise values that are held for their later readers

    @cached_property
    def delicate(self) -> frozenset[int]:
        """Values of which the last bit decides, as something whole is made of them."""
        return behind_decisions(self.program)

    @cached_property
    def read_narrowed(self) -> frozenset[int]:
        return read_narrowed(self.program)

    # -- values

    def label(self, position: int) -> str:
        """A readable stem for the registers of a node."""
        return value_name(self.program, position)

    def fragment(self, position: int) -> Fragment:
        """The node's value in registers."""
        if position not in self.values:
            self.values[position] = self._form(position)
        return self.values[position]

    def _form(self, position: int) -> Fragment:
        node = self.nodes[position]
        if isinstance(node.op, Load):
            return self._load(position)
        if is_reduction(node):
            return self._reduced(position)
        if isinstance(node.op, (Now, Prior)):
            raise Refusal("carried", f"node {position} is read outside its loop")
        self.prepare(position)
        fragment = self.new(self.label(position), node.axes, node.dtype)
        if widths := self._sharing(position, fragment):
            self._form_together(position, fragment, widths)
            return fragment
        with self.each(fragment.digits) as point:
            value = self.scalar(position, point, {}, top=True)
            self.w.line(f"{self.element(fragment, point)} = {value};")
        return fragment

    def prepare(self, position: int) -> None:
        """Form what the elementwise expression of `position` ends at."""
        seen = set[int]()
        for arg in self.nodes[position].args:
            self.ready(arg, self.nodes[position].axes, seen)
        self._ready_reciprocal(position, self.nodes[position].axes)

    def ready(self, position: int, axes: Sequence[str], seen: set[int] | None = None) -> None:
        """Form what an elementwise expression over `axes` ends at, or varies less than it does."""
        node, seen = self.nodes[position], set[int]() if seen is None else seen
        if position in self.values or position in seen or isinstance(node.op, (Constant, Iota)):
            return
        seen.add(position)
        leaf = isinstance(node.op, (Load, Now, Prior)) or is_reduction(node)
        narrower = self.own(node.axes) != self.own(axes) and not self.trivial(position)
        if leaf or narrower or position in self.kept:
            self.fragment(position)
            return
        for arg in node.args:
            self.ready(arg, axes, seen)
        self._ready_reciprocal(position, axes)

    def _ready_reciprocal(self, position: int, axes: Sequence[str]) -> None:
        """Form 1 / divisor where one divisor serves many quotients: a product is 8 times faster."""
        node = self.nodes[position]
        if not isinstance(node.op, Map) or node.op.function != "div" or position in self.delicate:
            return
        divisor = self.values.get(node.args[1])
        types = [self.nodes[arg].dtype for arg in node.args]
        if divisor is None or ~node.args[1] in self.values:
            return
        if set(map(scalars.register_type, types)) != {"f32"} or divisor.digits == self.own(axes):
            return
        inverse = self.new("inverse", self.nodes[node.args[1]].axes, "f32")
        with self.each(inverse.digits) as point:
            self.w.line(f"{self.element(inverse, point)} = 1.0f / {self.element(divisor, point)};")
        self.values[~node.args[1]] = inverse

    def form_without(self, position: int, axes: Sequence[str]) -> None:
        """Form what `position` is made of and does not vary along `axes`, ahead of loops there.

        Reductions too: inside the loops they would see a part of their points.
        """
        pending, seen = list(self.nodes[position].args), set[int]()
        while pending:
            here = pending.pop()
            node = self.nodes[here]
            if here in seen or here in self.values or isinstance(node.op, (Constant, Iota)):
                continue
            seen.add(here)
            if is_reduction(node) or not set(axes) & set(node.axes):
                if not self.trivial(here):
                    self.fragment(here)
            elif not isinstance(node.op, Load):
                pending.extend(node.args)

    def trivial(self, position: int) -> bool:
        """Made of coordinates and constants: cheaper to repeat than to keep."""
        return of_coordinates(self.program, position)

    def scalar(self, position: int, point: Point, memo: dict[int, str], top: bool = False) -> str:
        """The node's value at one point; what it ends at has been prepared."""
        if position in memo:
            return memo[position]
        node = self.nodes[position]
        if position in self.values and not top:
            return self.element(self.values[position], point)
        if isinstance(node.op, Constant):
            return scalars.literal(node.op.value, node.dtype)
        if isinstance(node.op, Iota):
            return self.coordinate(node.op.axis, point)
        if isinstance(node.op, Cast):
            inner = self.scalar(node.args[0], point, memo)
            text = scalars.convert(inner, self.nodes[node.args[0]].dtype, node.dtype)
            return scalars.within(text, node.dtype) if position in self.read_narrowed else text
        assert isinstance(node.op, Map), node.op
        if node.op.function == "where" and node.args[0] in self.assumed:
            return self.scalar(node.args[1], point, memo)
        text = self._quotient(position, point, memo) or self._gelu(position, point, memo)
        text = text or self._exponential(position, point, memo) or self._divided(position, point)
        text = text or self._drawn(position, point, memo)
        if not text:
            text = self.applied(position, [self.scalar(arg, point, memo) for arg in node.args])
        name = self.w.name("v")
        self.w.line(f"const {scalars.register_type(node.dtype)} {name} = {text};")
        memo[position] = name
        return name

    def _quotient(self, position: int, point: Point, memo: dict[int, str]) -> str:
        """A quotient by its divisor's reciprocal, if that was formed or the program states it."""
        node = self.nodes[position]
        assert isinstance(node.op, Map)
        if node.op.function != "div" or position in self.delicate:
            return ""
        inverse = self.values.get(~node.args[1])
        if inverse is not None:
            return f"({self.scalar(node.args[0], point, memo)} * {self.element(inverse, point)})"
        stated = stated_inverse(self.program, position)
        if stated is None:
            return ""
        return f"({self.scalar(node.args[0], point, memo)} * {scalars.literal(stated, 'f32')})"

    def _gelu(self, position: int, point: Point, memo: dict[int, str]) -> str:
        """GELU as one function, a third of the instructions of its formula."""
        inner = gelu_of(self.program, position)
        if inner is None or position in self.delicate:
            return ""
        return f"tw_gelu({self.scalar(inner, point, memo)})"

    def _exponential(self, position: int, point: Point, memo: dict[int, str]) -> str:
        """An exponential of a difference with a running extreme, as one multiply-add."""
        found = self._shifted(position)
        if found is None:
            return ""
        tangent, shift = self._tangent(position), self._shift(found, point, memo)
        if tangent is None:
            text = exponent_text(self.scalar(found.value, point, memo), found.factor, shift)
        else:
            grown = tangent.grown(self.scalar(tangent.value, point, memo))
            text = tangent_text(f"tw_reciprocal({grown})", found.factor, shift)
        if found.mask is None:
            return text
        return f"({self.scalar(found.mask, point, memo)} ? {text} : 0.0f)"

    def _shift(self, found: Shifted, point: Point, memo: dict[int, str]) -> str:
        return "" if found.shift is None else self.scalar(found.shift, point, memo)

    def _shifted(self, position: int) -> Shifted | None:
        found = shifted_exponent(self.program, position, self.assumed)
        return None if position in self.delicate else found

    def _tangent(self, position: int) -> Tangent | None:
        """The tangent in an exponential, if it is formed there and need not be exact."""
        found = self._shifted(position)
        if found is None or found.value in self.values:
            return None
        return coarse_tangent(self.program, position, found)

    def _sharing(self, position: int, fragment: Fragment) -> tuple[int, ...]:
        """How many points along each digit, two or four in all, have their tangents by one
        reciprocal; none where one that is NaN would make others so that are stored apart."""
        found, digits = self._shifted(position), fragment.digits
        if found is None or found.mask is not None or not self._tangent(position):
            return ()
        if not digits or digits[0].size % 2:
            return ()
        axis = digits[0].axis
        apart = not summed_along(self.program, position, axis)
        if apart if found.shift is None else axis in self.nodes[found.shift].axes:
            return ()
        if digits[0].size % 4 == 0:
            return (4, *(1 for _ in digits[1:]))
        even = [n for n, d in enumerate(digits) if n and d.axis == axis and d.size % 2 == 0]
        return (2, *(2 if n in even[:1] else 1 for n in range(1, len(digits))))

    def _form_together(self, position: int, fragment: Fragment, widths: Sequence[int]) -> None:
        """Exponentials of tangents, several by one reciprocal: 1/a is b/(a b)."""
        found, tangent = self._shifted(position), self._tangent(position)
        assert found is not None
        assert tangent is not None
        with self.each_group(fragment.digits, widths) as points:
            grown = [self.w.name("grown") for _ in points]
            for name, point in zip(grown, points, strict=True):
                text = tangent.grown(self.scalar(tangent.value, point, {}))
                self.w.line(f"const f32 {name} = {text};")
            for inverse, point in zip(self._inverses(grown), points, strict=True):
                text = tangent_text(inverse, found.factor, self._shift(found, point, {}))
                self.w.line(f"{self.element(fragment, point)} = {text};")

    def _inverses(self, values: Sequence[str]) -> list[str]:
        """The reciprocals of two or four values by one."""
        pairs = [self.w.name("both") for _ in values[::2]]
        for name, one, other in zip(pairs, values[::2], values[1::2], strict=True):
            self.w.line(f"const f32 {name} = {one} * {other};")
        inverse = self.w.name("inverse")
        self.w.line(f"const f32 {inverse} = tw_reciprocal({' * '.join(pairs)});")
        found = []
        for number, (one, other) in enumerate(zip(values[::2], values[1::2], strict=True)):
            both = inverse
            if len(pairs) > 1:
                both = self.w.name("inverse")
                self.w.line(f"const f32 {both} = {inverse} * {pairs[1 - number]};")
            found += [f"{both} * {other}", f"{both} * {one}"]
        return found

    def _divided(self, position: int, point: Point) -> str:
        """A quotient or rest of coordinates, so that neighbours are seen to have one."""
        found = divided(self.program, position)
        if found is None:
            return ""
        kind = scalars.register_type(self.nodes[self.nodes[position].args[0]].dtype)
        first, steps = [str(found.constant)], ["0"]
        for axis, c in found.multiples.items():
            first.append(f"({kind}){times(self.base(axis), c)}")
            if step := self.step(axis, point):
                steps.append(f"({kind}){times(f'({step})', c)}")
        if len(steps) == 1:
            return ""
        name = self.w.name("first")
        self.w.line(f"const {kind} {name} = {' + '.join(first)};")
        return found.text(name, f"({' + '.join(steps)})")

    def _drawn(self, position: int, point: Point, memo: dict[int, str]) -> str:
        """A comparison of a drawn number, unless the number is there already."""
        found = compared_draw(self.program, position)
        if found is None or {*self.nodes[position].args} & {*self.values}:
            return ""
        return found.text(self.scalar(found.word, point, memo))

    def behind(self, ordered: Ordered, value: str) -> str:
        """What functions of one value, and of constants, make of it."""
        inner, nowhere = ordered.value, Point({})
        for position in ordered.through:
            args = self.nodes[position].args
            texts = [value if arg == inner else self.scalar(arg, nowhere, {}) for arg in args]
            inner, value = position, self.applied(position, texts)
        return value

    def applied(self, position: int, arguments: list[str]) -> str:
        node, op = self.nodes[position], self.nodes[position].op
        assert isinstance(op, Map)
        types = [self.nodes[arg].dtype for arg in node.args]
        operand = op.operand(types)
        logic = op.function in ("and", "or", "not")
        for i, dtype in enumerate(types):
            if not logic and not (op.function == "where" and i == 0):
                arguments[i] = scalars.convert(arguments[i], dtype, operand)
        if op.function == "lookup":
            return looked_up(op.entries, node.dtype, arguments[0])
        if op.function == "bitcast":
            return scalars.bitcast(arguments[0], operand, node.dtype)
        if op.function in ("shl", "shr"):
            inside = shifts_inside(self.program, node.args[1], operand)
            return scalars.shift(op.function, arguments[0], arguments[1], inside)
        if not (exact := position in self.delicate) and is_coarse_wave(self.program, position):
            return f"tw_{op.function}_coarse({arguments[0]})"
        if op.function == "mul":
            arguments = self._factors(node.args, arguments, operand)
        return scalars.apply(op.function, node.dtype, arguments, operand, exact)

    def _factors(self, positions: Sequence[int], texts: list[str], dtype: str) -> list[str]:
        """Factors of a product in `dtype`; whole numbers that are made of others hidden."""
        if dtype != "i32":
            return texts
        pairs = zip(positions, texts, strict=True)
        return [scalars.hidden(t) if self._made(position) else t for position, t in pairs]

    def _made(self, position: int) -> bool:
        """Computed of what was read, and not only read."""
        node = self.nodes[position]
        while isinstance(node.op, Cast):
            if dtype_of(node.dtype).per_byte > 1:  # hidden there
                return False
            position, node = node.args[0], self.nodes[node.args[0]]
        return isinstance(node.op, Map) and not self.trivial(position)

    # -- reductions

    def identity(self, position: int) -> str:
        """What a reduction starts from."""
        return scalars.literal(COMBINES[self.kind(position)].identity, self.nodes[position].dtype)

    def running(self, position: int, state: str) -> str:
        """A carry's state as others read it."""
        dtype = self.nodes[position].dtype
        bound = running_bound(self.kind(position), dtype)
        if bound is None:
            return state
        return scalars.apply(bound[0], dtype, [state, scalars.literal(bound[1], dtype)], dtype)

    def _reduced(self, position: int) -> Fragment:
        """A reduction over axes that the tile holds whole."""
        if self.looped & {*reduced_axes(self.nodes[position])}:
            raise Refusal("loops", f"node {position} reduces over a loop that has not run")
        return self.of_tile(position)

    def of_tile(self, position: int) -> Fragment:
        """What a reduction comes to over a tile's points."""
        partial, roots, gone = self.partial(position), self.body(position), self.gone(position)
        even = even_value(self.program, roots[0]) if len(roots) == 1 else None
        whole = not any(digit.axis in gone for digit in self.fixed) and self.spread not in gone
        if even is not None and whole and self.kind(position) == "sum":
            count = f"({self.nodes[position].dtype})({even}) * {self.points(gone)}"
            with self.each(partial.digits) as point:
                self.w.line(f"{self.element(partial, point)} = {count};")
            return partial
        self.accumulate(position, partial)
        self.all_reduce(position, partial)
        return partial

    def partial(self, position: int) -> Fragment:
        node = self.nodes[position]
        return self.new(self.label(position), node.axes, node.dtype, self.identity(position))

    def accumulate(
        self, position: int, partial: Fragment, roots: tuple[int, ...] | None = None
    ) -> None:
        """Combine this tile's points into each thread's partial results; `roots` are the tiles, if
        not the reduction's own."""
        node, roots = self.nodes[position], roots or self.body(position)
        axes = dict.fromkeys(axis for root in roots for axis in self.nodes[root].axes)
        gone = self.gone(position)
        summed = [axis for axis in axes if axis in gone]
        for root in roots:
            self.ready(root, tuple(axes))
        digits, partials = self.own(axes), [partial]
        widths = self._chains(position, digits, partial)
        if prod(widths) > 1:
            partials.append(self.new("other", node.axes, node.dtype, self.identity(position)))
        with self.each_group(digits, widths) as points:
            for target, point in zip(partials, points, strict=True):
                self._combine_point(position, roots, summed, target, point)
        for other in partials[1:]:
            with self.each(partial.digits) as point:
                to, more = self.element(partial, point), self.element(other, point)
                combined = self.combine(self.kind(position), to, more, node.dtype)
                self.w.line(f"{to} = {combined};")

    def _chains(self, position: int, digits: Sequence[Digit], partial: Fragment) -> tuple[int, ...]:
        """How many neighbours along each digit are combined side by side: two of an extreme of many
        registers, where no other threads' instructions come between those that wait for each
        other."""
        alone = [1] * len(digits)
        gone = [n for n, d in enumerate(digits) if d not in partial.digits and d.size % 2 == 0]
        many = prod(digit.size for digit in digits) >= LONG_CHAIN * max(partial.count, 1)
        if self.side_by_side and self.kind(position) in ("max", "min") and many and gone:
            alone[gone[0]] = 2
        return tuple(alone)

    def _combine_point(
        self, position: int, roots: tuple[int, ...], summed: list[str], partial: Fragment,
        point: Point,
    ) -> None:  # fmt: skip
        node, memo = self.nodes[position], dict[int, str]()
        parts = [self._term(root, point, memo, node.dtype) for root in roots]
        parts = self._factors(roots, parts, node.dtype if len(roots) > 1 else "")
        value = " * ".join(parts)
        if len(parts) == 2 and node.dtype == "i64":
            value = scalars.apply("mul", node.dtype, parts, node.dtype)
        inside = self.inside(summed, point)  # other points are not stored
        if inside:
            value = f"({inside} ? {value} : {self.identity(position)})"
        target = self.element(partial, point)
        if len(parts) == 2 and node.dtype == "f32" and not inside:
            self.w.line(f"{target} = fmaf({parts[0]}, {parts[1]}, {target});")
            return
        combined = self.combine(self.kind(position), target, value, node.dtype)
        self.w.line(f"{target} = {combined};")

    def _term(self, root: int, point: Point, memo: dict[int, str], dtype: str) -> str:
        """What a reduction takes of one point, in its own type."""
        text = self.scalar(root, point, memo)
        if narrows(self.program, root) and root not in self.read_narrowed:
            text = scalars.within(text, self.nodes[root].dtype)
        return scalars.convert(text, self.nodes[root].dtype, dtype)
