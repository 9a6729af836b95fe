"""The states of reductions over looped axes: before a loop, in its steps, behind it.

Knows how values are formed (`evaluate`), not what the loops are.
"""

from __future__ import annotations

from ir.ops.reduce import Carry, Now, Prior
from ir.scalar import running_bound
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.exponents import ordered_extreme
from ir.targets.cuda.text.passes import Passes
from ir.targets.cuda.text.registers import Fragment


class TileBody:
    """Writes what becomes of states with an evaluator."""

    def __init__(self, evaluator: Evaluator, passes: Passes, looped: frozenset[str]) -> None:
        self.e, self.passes, self.looped = evaluator, passes, looped
        self.program, self.nodes = evaluator.program, evaluator.program.nodes
        evaluator.looped = looped
        self.later = (
            "true"  # whether this is not the first block of a main loop: nothing to correct
        )

    # -- one reduction over the looped axes

    def open(self, position: int) -> Fragment:
        """Its state before the loop."""
        return self.e.partial(position)

    def advance(self, position: int, state: Fragment) -> None:
        """Combine one block in."""
        node = self.nodes[position]
        readers = [
            (p, n.op) for p, n in enumerate(self.nodes)
            if isinstance(n.op, (Now, Prior)) and n.args[0] == position
        ]  # fmt: skip
        prior = [p for p, op in readers if isinstance(op, Prior)]
        now = [p for p, op in readers if not isinstance(op, Prior)]
        if prior:
            self._remember(prior, state)
        self.rescale(position, state)
        if not readers:
            self.e.accumulate(position, state)
            return
        block = self._of_block(position)
        with self.e.each(state.digits) as point:
            target = self.e.element(state, point)
            other = self.e.element(block, point)
            text = self.e.combine(self.e.kind(position), target, other, node.dtype)
            self.e.w.line(f"{target} = {text};")
        if now:
            self._show(now, state)

    def _of_block(self, position: int) -> Fragment:
        """What one block comes to: functions that keep the order come behind its extreme."""
        ordered = ordered_extreme(self.program, position, self.e.assumed)
        if ordered is None:
            return self.e.of_tile(position)
        block = self.e.partial(position)
        self.e.accumulate(position, block, (ordered.value,))
        self.e.all_reduce(position, block)
        with self.e.each(block.digits) as point:
            place = self.e.element(block, point)
            self.e.w.line(f"{place} = {self.e.behind(ordered, place)};")
        return block

    def _show(self, readers: list[int], state: Fragment) -> None:
        """Now is the state itself, unless it has to be made finite."""
        carry = self.nodes[readers[0]].args[0]
        if running_bound(self.e.kind(carry), self.nodes[carry].dtype):
            self._remember(readers, state, "now")
            return
        for reader in readers:
            self.e.values[reader] = state

    def _remember(self, readers: list[int], state: Fragment, word: str = "prior") -> None:
        position = readers[0]
        node = self.nodes[position]
        copy = self.e.new(f"{word}_{node.args[0]}", node.axes, node.dtype)
        with self.e.each(copy.digits) as point:
            value = self.e.running(node.args[0], self.e.element(state, point))
            self.e.w.line(f"{self.e.element(copy, point)} = {value};")
        for reader in readers:
            self.e.values[reader] = copy

    def rescale(self, position: int, state: Fragment, moved: bool = False) -> None:
        """Correct a carry's state for what moved: state * factor + addend.

        A state that is still spread over threads takes the factor in each; the addend of a sum is
        taken in one of them, and that of an extreme, which all partial ones move by, in each. With
        `moved`, threads all of whose factors are 1 leave it: that changes no bit.
        """
        node = self.nodes[position]
        if not isinstance(node.op, Carry) or not (node.op.factor or node.op.addend):
            return
        extra = list(node.args[1:])
        factor = extra.pop(0) if node.op.factor else None
        addend = extra.pop(0) if node.op.addend else None
        for part in (factor, addend):
            if part is not None:
                self.e.fragment(part)
        once = ""
        if addend is not None and self.e.kind(position) == "sum":
            once = self._holds_sum(position)
        when = self.later
        if moved and factor is not None and addend is None:
            when = f"{when} && {self._moves(factor)}"
        with self.e.w.block(f"if ({when})"), self.e.each(state.digits) as point:
            target = self.e.element(state, point)
            text = target
            if factor is not None:
                text = f"{self.e.running(position, text)} * {self.e.scalar(factor, point, {})}"
            if addend is not None:
                more = self.e.scalar(addend, point, {})
                text += f" + ({once} ? {more} : 0)" if once else f" + {more}"
            self.e.w.line(f"{target} = {text};")

    def _moves(self, factor: int) -> str:
        """Declare whether one of a thread's factors is not 1; the name."""
        name, fragment = self.e.w.name("moved"), self.e.fragment(factor)
        self.e.w.line(f"bool {name} = false;")
        with self.e.each(fragment.digits) as point:
            self.e.w.line(f"{name} |= {self.e.element(fragment, point)} != 1;")
        return name

    def _holds_sum(self, position: int) -> str:
        """The threads to which an addend is given, where a state is spread over several."""
        spread = not any(
            isinstance(n.op, (Now, Prior)) and n.args[0] == position for n in self.nodes
        )
        if not spread:
            return ""
        return self.e.first_holder(self.nodes[position].axes, self.e.gone(position))

    def close(self, position: int, state: Fragment) -> None:
        """The final value after the loop."""
        spread = not any(
            isinstance(n.op, (Now, Prior)) and n.args[0] == position for n in self.nodes
        )
        if spread:
            self.e.all_reduce(position, state)
        self.e.values[position] = state
