"""Saved trees, examined before XGBoost sees them: its reader takes what it is given on trust, and
three flipped bits end the process.

What is written for it is made anew from the values that were found sound, so that nothing else of
a file, which may be a stranger's, reaches it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.ubjson import decode, encode

OBJECTIVES = ("reg:squarederror", "binary:logistic")
MOST_TREES = 100_000
_ROOTS_PARENT = 2**31 - 1
_INTEGERS = ("left_children", "right_children", "parents", "split_indices")
_FLOATS = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
_CODES = ("default_left", "split_type")
_SETS = (("categories", ">i4"), ("categories_nodes", ">i4"), ("categories_segments", ">i8"),
         ("categories_sizes", ">i8"))  # fmt: skip
_NUMBER = re.compile(r"\[?-?\d{1,20}(\.\d{1,20})?([eE][-+]?\d{1,3})?\]?")

Fields = Mapping[str, NDArray[Any]]


class Unsound(ValueError):
    """Trees that no search should walk; one line."""


def sound(data: bytes, width: int) -> bytes:
    """The same trees over `width` features for XGBoost to read; raises Unsound, or ValueError for
    what is no UBJSON."""
    try:
        return encode(_booster(decode(data), width))
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise Unsound(f"not as XGBoost writes them ({type(error).__name__}: {error})") from None


def _booster(found: Mapping[str, Any], width: int) -> dict[str, Any]:
    learner = found["learner"]
    model = learner["gradient_booster"]["model"]
    trees = model["trees"]
    if not isinstance(trees, list) or not 1 <= len(trees) <= MOST_TREES:
        raise Unsound(f"{len(trees)} trees")
    objective = learner["objective"]["name"]
    if objective not in OBJECTIVES:
        raise Unsound(f"objective {objective!r}")
    version = [_whole(part, 0, 1000) for part in found["version"]]
    if len(version) != 3 or version[0] < 2:
        raise Unsound(f"version {version}")
    return {
        "learner": {
            "attributes": {},
            "feature_names": [],
            "feature_types": [],
            "gradient_booster": {
                "model": _forest(_checked(trees, width), width),
                "name": "gbtree",
            },
            "learner_model_param": {
                "base_score": _number(learner["learner_model_param"]["base_score"]),
                "boost_from_average": "1",
                "num_class": "0",
                "num_feature": str(width),
                "num_target": "1",
            },
            "objective": {"name": objective, "reg_loss_param": {"scale_pos_weight": "1"}},
        },
        "version": version,
    }


def _forest(trees: Sequence[Fields], width: int) -> dict[str, Any]:
    count = len(trees)
    return {
        "cats": {"enc": [], "feature_segments": _none(">i4"), "sorted_idx": _none(">i4")},
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(count)},
        "iteration_indptr": list(range(count + 1)),
        "tree_info": [0] * count,
        "trees": [_tree(number, fields, width) for number, fields in enumerate(trees)],
    }


def _tree(number: int, fields: Fields, width: int) -> dict[str, Any]:
    param = {
        "num_deleted": "0",
        "num_feature": str(width),
        "num_nodes": str(len(fields["parents"])),
        "size_leaf_vector": "1",
    }
    return {"id": number, "tree_param": param, **fields} | {n: _none(code) for n, code in _SETS}


def _none(code: str) -> NDArray[Any]:
    return np.empty(0, dtype=code)


def _checked(trees: Sequence[Mapping[str, Any]], width: int) -> list[Fields]:
    """Every tree's columns as XGBoost stores them, once all hold; raises Unsound."""
    found: list[Fields] = [_columns(number, tree) for number, tree in enumerate(trees)]
    sizes = np.array([len(fields["parents"]) for fields in found])
    whole = {name: np.concatenate([fields[name] for fields in found]) for name in found[0]}
    _check_shape(whole, sizes)
    inner = whole["left_children"] >= 0
    split = whole["split_indices"]
    _require((split >= 0) & (split < width) | ~inner, f"a split by none of {width} features")
    _require(split >= 0, "a split by no feature")
    _require(whole["default_left"] <= 1, "a default that is neither left nor right")
    _require(whole["split_type"] == 0, "a split by categories")
    for name in _FLOATS:
        _require(np.isfinite(whole[name]), f"{name} that are no numbers")
    return found


def _columns(number: int, tree: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    names = (*_INTEGERS, *_FLOATS, *_CODES)
    columns = {name: np.asarray(tree[name]) for name in names}
    sizes = {column.shape for column in columns.values()}
    if len(sizes) != 1 or len(next(iter(sizes))) != 1 or not columns["parents"].size:
        raise Unsound(f"tree {number}: columns of different lengths")
    if any(len(tree[name]) for name, _ in _SETS):
        raise Unsound(f"tree {number}: a split by categories")
    if _whole(tree["tree_param"]["num_nodes"], 1, 2**31) != columns["parents"].size:
        raise Unsound(f"tree {number}: not as many nodes as it says")
    for group, code in ((_INTEGERS, ">i4"), (_FLOATS, ">f4"), (_CODES, "u1")):
        for name in group:
            columns[name] = _typed(f"tree {number}: {name}", columns[name], np.dtype(code))
    return columns


def _typed(what: str, column: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The column in the type that XGBoost has for it, without loss; raises Unsound."""
    if column.dtype.kind not in "iuf" or (dtype.kind != "f" and column.dtype.kind == "f"):
        raise Unsound(f"{what} are of another type")
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        _require((column >= limits.min) & (column <= limits.max), f"{what} are out of range")
    with np.errstate(over="ignore"):
        return column.astype(dtype)


def _check_shape(whole: Fields, sizes: NDArray[Any]) -> None:
    """Each tree is one: two children or none, later than their parent, and one parent each."""
    ends = np.cumsum(sizes)
    start = np.repeat(ends - sizes, sizes)
    here = np.arange(ends[-1]) - start
    size = np.repeat(sizes, sizes)
    left, right = whole["left_children"].astype(np.int64), whole["right_children"].astype(np.int64)
    inner = left != -1
    _require((right == -1) | inner, "a node with one child")
    for child in (left, right):
        _require(~inner | ((child > here) & (child < size)), "a child that is no later node")
    parents = np.full(ends[-1], -1, dtype=np.int64)
    nodes = np.flatnonzero(inner)
    for child in (left, right):
        parents[start[nodes] + child[nodes]] = here[nodes]
    counts = np.bincount(
        np.concatenate([(start + c)[nodes] for c in (left, right)]), None, ends[-1]
    )
    root = here == 0
    _require(counts == np.where(root, 0, 1), "a node with two parents, or none")
    parents[root] = _ROOTS_PARENT
    _require(whole["parents"] == parents, "a parent that is none")


def _require(holds: NDArray[Any], what: str) -> None:
    if not np.all(holds):
        raise Unsound(what)


def _whole(value: Any, least: int, end: int) -> int:
    number = int(value)
    if not least <= number < end:
        raise Unsound(f"{number} where {least} to {end - 1} may stand")
    return number


def _number(text: str) -> str:
    """A number as XGBoost writes it, [5E-1]; raises Unsound."""
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text.strip("[]"))):
        raise Unsound("a base score that is no number")
    return text
