"""Solutions written by hand from the PTX tables, which the checker must find faultless.

They owe nothing to the solver, so faults seeded into them test the checker alone.
"""

from __future__ import annotations

from typing import Any

from ir.layout.synthesis.problem import Tile, TileOp, TileProgram

Plain = dict[str, Any]
Layouts = tuple[tuple[str, Plain], ...]  # of each tile, and what else there is to say of it


def _tile(tile: Tile, layout: str, **facts: Any) -> Plain:
    return {
        "name": tile.name,
        "of": tile.name,
        "dtype": tile.dtype,
        "axes": [list(axis) for axis in tile.axes],
        "scope": tile.scope,
        "layout": layout,
        "registers": 0,
        "replicated": [],
        "bytes": 0,
        "stages": 1,
        "alignment": tile.alignment,
        **facts,
    }


def _copy(op: int, source: str, target: str, *instructions: str, **facts: Any) -> Plain:
    return {
        "kind": "copy",
        "op": op,
        "source": source,
        "target": target,
        "instructions": list(instructions),
        "values": "",
        "source_addresses": "",
        "target_addresses": "",
        "issues": 1,
        "guards": [],
        "ways": 1,
        "sectors": 0,
        "tma": None,
        **facts,
    }


def _map(op: int, inputs: list[str], output: str, *values: str) -> Plain:
    return {"kind": "map", "op": op, "inputs": inputs, "output": output, "values": list(values)}


def _tiles(program: TileProgram, layouts: Layouts) -> list[Plain]:
    pairs = zip(program.tiles, layouts, strict=True)
    return [_tile(tile, text, **facts) for tile, (text, facts) in pairs]


def _solution(program: TileProgram, tiles: list[Plain], steps: list[Plain]) -> Plain:
    shared = sum(tile["bytes"] for tile in tiles if tile["scope"] == "shared")
    return {
        "program": program.name,
        "threads": program.threads,
        "tiles": tiles,
        "steps": steps,
        "shared_bytes": shared,
    }


def _warp_program() -> TileProgram:
    a, b = (("m", 16), ("k", 16)), (("n", 16), ("k", 16))
    c = (("m", 16), ("n", 16))
    tiles = (
        Tile("a_g", "f16", a, "global", (64, 1)),
        Tile("b_g", "f16", b, "global", (64, 1)),
        Tile("a_s", "f16", a, "shared"),
        Tile("b_s", "f16", b, "shared"),
        Tile("a_r", "f16", a, "register"),
        Tile("b_r", "f16", b, "register"),
        Tile("c", "f32", c, "register"),
        Tile("c_g", "f32", c, "global", (64, 1)),
    )
    ops = (
        TileOp("copy", ("a_g",), ("a_s",)),
        TileOp("copy", ("b_g",), ("b_s",)),
        TileOp("copy", ("a_s",), ("a_r",)),
        TileOp("copy", ("b_s",), ("b_r",)),
        TileOp("fill", (), ("c",), (("value", 0),)),
        TileOp("gemm", ("a_r", "b_r"), ("c",), (("m", "m"), ("n", "n"), ("k", "k"))),
        TileOp("copy", ("c",), ("c_g",)),
    )
    return TileProgram("warp_product", 32, tiles, ops)


def _warp_layouts() -> Layouts:
    rows, near = "(16,16):(64,1)", "S(1,3,3) o 0 o (16,16):(16,1)"
    fragment = "((4,8),(2,2,2)):((32,1),(16,8,128))"
    return (
        (rows, {}),
        (rows, {}),
        (near, {"bytes": 512, "alignment": 256}),
        (near, {"bytes": 512, "alignment": 256}),
        (fragment, {"registers": 4}),
        ("((4,8),(2,2,2)):((32,1),(16,128,8))", {"registers": 4}),
        (fragment, {"registers": 8}),
        (rows, {}),
    )


def _warp_gemm() -> Plain:
    return {
        "kind": "gemm",
        "op": 5,
        "instruction": "mma.m16n8k16.f16",
        "swapped": False,
        "a": "a_r",
        "b": "b_r",
        "c": "c",
        "loops": [1, 2, 1],
        "warps": [1, 1],
        "a_values": "(8,1,1):(1,0,0)",
        "b_values": "(4,2,1):(1,4,0)",
        "c_values": "(4,1,2):(1,0,4)",
        "a_descriptor": None,
        "b_descriptor": None,
        "m_order": "(16,1):(1,0)",
        "n_order": "(8,2):(1,8)",
        "k_order": "(16,1):(1,0)",
    }


def warp_product() -> tuple[TileProgram, Plain]:
    """One warp, 16x16x16 in f16: cp.async, ldmatrix.x4 on 32-byte rows, mma.sync, 8-byte stores."""
    program = _warp_program()
    chunks = "((2,16),1):((128,1),0)"
    fill = {"bits": 128, "elements": 8, "sectors": 16}
    fill |= {"source_addresses": chunks, "target_addresses": chunks}  # type: ignore[dict-item]
    load = {"bits": 128, "elements": 8, "values": "(8,1):(1,0)"}
    steps = [
        _copy(0, "a_g", "a_s", "cp.async.16", **fill),
        _copy(1, "b_g", "b_s", "cp.async.16", **fill),
        _copy(2, "a_s", "a_r", "ldmatrix.x4", source_addresses="((16,2),1):((1,128),0)", **load),
        _copy(3, "b_s", "b_r", "ldmatrix.x4", source_addresses="((8,2,2),1):((1,128,8),0)", **load),
        _map(4, [], "c"),
        _warp_gemm(),
        _copy(
            6, "c", "c_g", "st.64", bits=64, elements=2, issues=4, sectors=8, values="(2,4):(1,2)",
            target_addresses="((4,8),(2,2)):((32,1),(8,128))",
        ),
    ]  # fmt: skip
    return program, _solution(program, _tiles(program, _warp_layouts()), steps)


def _box(columns: int, rows: int, swizzle: int) -> Plain:
    """One box of rows of bf16 that lie 512 elements apart."""
    return {
        "extents": [columns, rows],
        "strides": [1, 512],
        "box": f"({columns},{rows}):({rows},1)",
        "starts": "1:0",
        "shared_starts": [0],
        "swizzle": swizzle,
        "bytes": columns * rows * 2,
    }


def _group_program() -> TileProgram:
    a, b, c = (("m", 64), ("k", 64)), (("n", 16), ("k", 64)), (("m", 64), ("n", 16))
    tiles = (
        Tile("a_g", "bf16", a, "global", (512, 1)),
        Tile("b_g", "bf16", b, "global", (512, 1)),
        Tile("a_s", "bf16", a, "shared"),
        Tile("b_s", "bf16", b, "shared"),
        Tile("c", "f32", c, "register"),
        Tile("d", "bf16", c, "register"),
        Tile("d_s", "bf16", c, "shared"),
        Tile("d_g", "bf16", c, "global", (512, 1)),
    )
    ops = (
        TileOp("copy", ("a_g",), ("a_s",)),
        TileOp("copy", ("b_g",), ("b_s",)),
        TileOp("fill", (), ("c",), (("value", 0),)),
        TileOp("gemm", ("a_s", "b_s"), ("c",), (("m", "m"), ("n", "n"), ("k", "k"))),
        TileOp("cast", ("c",), ("d",)),
        TileOp("copy", ("d",), ("d_s",)),
        TileOp("copy", ("d_s",), ("d_g",)),
    )
    return TileProgram("group_product", 128, tiles, ops)


def _group_layouts() -> Layouts:
    fragment = "((4,8,4),(2,2,2)):((128,1,16),(64,8,512))"
    return (
        ("(64,64):(512,1)", {}),
        ("(16,64):(512,1)", {}),
        ("S(3,3,3) o 0 o (64,64):(64,1)", {"bytes": 8192, "alignment": 1024}),
        ("S(3,3,3) o 0 o (16,64):(64,1)", {"bytes": 2048, "alignment": 1024}),
        (fragment, {"registers": 8}),
        (fragment, {"registers": 4}),
        ("S(1,3,3) o 0 o (64,16):(16,1)", {"bytes": 2048, "alignment": 256}),
        ("(64,16):(512,1)", {}),
    )


def _group_gemm() -> Plain:
    word = (1 << 62) | (64 << 32) | (1 << 16)
    facts = {"major": "k", "swizzle": 3, "lbo": 16, "sbo": 1024, "word": word}
    return {
        "kind": "gemm",
        "op": 3,
        "instruction": "wgmma.m64n16k16.bf16.ss",
        "swapped": False,
        "a": "a_s",
        "b": "b_s",
        "c": "c",
        "loops": [1, 1, 4],
        "warps": [1, 1],
        "a_values": "",
        "b_values": "",
        "c_values": "(8,1,1):(1,0,0)",
        "a_descriptor": {**facts, "starts": "(1,1,4):(0,0,32)"},
        "b_descriptor": {**facts, "starts": "(1,1,4):(0,0,32)"},
        "m_order": "(64,1):(1,0)",
        "n_order": "(16,1):(1,0)",
        "k_order": "(16,4):(1,16)",
    }


def group_product() -> tuple[TileProgram, Plain]:
    """One warp group, 64x16x64 in bf16: TMA, wgmma on 128-byte rows, stmatrix and a TMA store."""
    program = _group_program()
    load = {"bits": 128, "elements": 8}
    steps = [
        _copy(0, "a_g", "a_s", "tma.load", tma=_box(64, 64, 3), **load),
        _copy(1, "b_g", "b_s", "tma.load", tma=_box(64, 16, 3), **load),
        _map(2, [], "c"),
        _group_gemm(),
        _map(4, ["c"], "d", "8:1"),
        _copy(
            5, "d", "d_s", "stmatrix.x4", values="(8,1):(1,0)",
            target_addresses="((8,2,2,4),1):((1,8,512,16),0)", **load,
        ),
        _copy(6, "d_s", "d_g", "tma.store", tma=_box(16, 64, 1), **load),
    ]  # fmt: skip
    return program, _solution(program, _tiles(program, _group_layouts()), steps)


def block_sum() -> tuple[TileProgram, Plain]:
    """Two warps sum rows of 128: in the thread, by shuffles, across warps; thread 0 stores them."""
    x = (("m", 2), ("n", 128))
    tiles = (
        Tile("x_g", "f32", x, "global", (512, 1)),
        Tile("x", "f32", x, "register"),
        Tile("y", "f32", (("m", 2),), "register"),
        Tile("y_g", "f32", (("m", 2),), "global", (1,)),
    )
    ops = (
        TileOp("copy", ("x_g",), ("x",)),
        TileOp("reduce", ("x",), ("y",), (("axis", "n"), ("fn", "sum"))),
        TileOp("copy", ("y",), ("y_g",)),
    )
    program = TileProgram("block_sum", 64, tiles, ops)
    everyone = [[1, 32], [32, 2]]
    plans = [
        _tile(tiles[0], "(2,128):(512,1)"),
        _tile(tiles[1], "(64,(2,2)):(4,(2,1))", registers=4),
        _tile(tiles[2], "(64,2):(0,1)", registers=2, replicated=everyone),
        _tile(tiles[3], "2:1"),
    ]
    steps = [
        _copy(
            0, "x_g", "x", "ld.64", bits=64, elements=2, issues=2, sectors=8,
            values="(2,2):(1,2)", source_addresses="(64,2):(4,1)",
        ),
        {
            "kind": "reduce",
            "op": 1,
            "input": "x",
            "output": "y",
            "values": "(2,2):(2,1)",
            "lanes": [1, 2, 4, 8, 16],
            "digits": [[32, 2]],
            "scratch_bytes": 16,
            "replicated": everyone,
        },
        _copy(
            2, "y", "y_g", "st.32", bits=32, elements=1, issues=2, sectors=1, guards=[[1, 64]],
            values="(1,2):(0,1)", target_addresses="(64,2):(0,1)",
        ),
    ]  # fmt: skip
    return program, _solution(program, plans, steps)


def exchanged() -> tuple[TileProgram, Plain]:
    """One warp loads pairs, exchanges the pair bit with lane bit 0, and stores single elements."""
    axes = (("n", 64),)
    tiles = (
        Tile("x_g", "f32", axes, "global", (1,)),
        Tile("x", "f32", axes, "register"),
        Tile("y_g", "f32", axes, "global", (1,)),
    )
    ops = (TileOp("copy", ("x_g",), ("x",)), TileOp("copy", ("x",), ("y_g",)))
    program = TileProgram("exchanged", 32, tiles, ops)
    turned = _tile(tiles[1], "((2,16),2):((1,4),2)", registers=2) | {"name": "x_turned"}
    plans = [
        _tile(tiles[0], "64:1"),
        _tile(tiles[1], "(32,2):(2,1)", registers=2),
        turned,
        _tile(tiles[2], "64:1"),
    ]
    steps = [
        _copy(
            0, "x_g", "x", "ld.64", bits=64, elements=2, sectors=8,
            values="(2,1):(1,0)", source_addresses="(32,1):(2,0)",
        ),
        {
            "kind": "convert",
            "op": 1,
            "source": "x",
            "target": "x_turned",
            "price_class": "shuffle",
            "moves": [{"kind": "exchange", "values": "", "lane": 1, "value": 1}],
            "scratch": None,
            "store": None,
            "load": None,
        },
        _copy(
            1, "x_turned", "y_g", "st.32", bits=32, elements=1, issues=2, sectors=8,
            values="(1,2):(0,1)", target_addresses="((2,16),2):((1,4),2)",
        ),
    ]  # fmt: skip
    return program, _solution(program, plans, steps)


HANDMADE = {
    "warp_product": warp_product,
    "group_product": group_product,
    "block_sum": block_sum,
    "exchanged": exchanged,
}
