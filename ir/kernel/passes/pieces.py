"""Operations of a block that are done piece by piece: operands of one piece beside the products of
another."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ir.kernel.strip import Strip
from ir.kernel.tile_kernel import Do, Loop, Statement, TileKernel, rewritten


@dataclass(frozen=True, slots=True)
class Pieces:
    """Every operation of the strip's body, where a loop does it, as often as there are pieces.

    >>> from ir.kernel.body import Body
    >>> lines = ["form: threads(a) -> w", "multiply: tensor(w, s) -> s takes r", "places w 2"]
    >>> body = Body.parse("\\n".join(lines))
    >>> kernel = TileKernel(
    ...     "k",
    ...     operations=body.operations,
    ...     body=(Loop("block", tuple(Do(one.name) for one in body.operations)),),
    ... )
    >>> for line in str(Pieces(Strip(body, 2))(kernel)).splitlines()[3:]:
    ...     print(line)
    for block from 0 to blocks order straight
      do form piece 0
      do multiply piece 0
      do form piece 1
      do multiply piece 1
    """

    strip: Strip

    def __call__(self, kernel: TileKernel) -> TileKernel:
        names = {one.name for one in self.strip.body.operations}

        def change(one: Statement) -> tuple[Statement, ...]:
            if not isinstance(one, Loop) or not names & {*_names(one.body)}:
                return (one,)
            found: list[Statement] = []
            for inside in one.body:
                if not isinstance(inside, Do) or inside.operation not in names:
                    found.append(inside)
                elif inside.operation == self.strip.body.operations[0].name:
                    found += self._pieces(inside)
            return (replace(one, body=tuple(found), order=str(self.strip)),)

        return kernel.with_body(rewritten(kernel.body, change))

    def _pieces(self, like: Do) -> list[Statement]:
        made = self.strip.body.operations
        return [
            replace(like, operation=made[moment.operation].name, piece=moment.piece)
            for moment in self.strip.moments
        ]


def _names(body: tuple[Statement, ...]) -> list[str]:
    return [one.operation for one in body if isinstance(one, Do)]
