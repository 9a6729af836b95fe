"""The page on farms says what works: Dask's own command line takes its words, and so do its options
in Python. What is typed for Tilewright is run on a real farm (`test_cluster`)."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from typing import Any

import distributed
import pytest
from distributed.cli import dask_scheduler, dask_worker

from explorer.cli.farm import COMMANDS
from explorer.farm.worker import PRELOAD
from tests.docs.pages import blocks
from tests.farm.cluster import CPU

PAGE = "docs/farm.md"
_COMMANDS = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}


def dask_commands() -> list[list[str]]:
    """The words behind `dask` of every line of the page that has it."""
    lines = [
        line for kind in ("sh", "bash") for text in blocks(PAGE, kind) for line in text.split("\n")
    ]
    found = [re.search(r"\bdask ((?:scheduler|worker)\b.*?)&?$", line) for line in lines]
    return [shlex.split(match[1]) for match in found if match]


def _kubernetes() -> list[list[str]]:
    (text,) = blocks(PAGE, "yaml")
    found = re.findall(r"args: \[dask, (.*)\]", text)
    return [[word.strip('"') for word in words.split(", ")] for words in found]


def test_dask_takes_every_command_of_the_page() -> None:
    commands = [*dask_commands(), *_kubernetes()]
    assert len(commands) == 9
    for words in commands:
        main = _COMMANDS[words[0]]
        context = main.make_context(words[0], list(words[1:]))
        if words[0] == "worker":
            assert context.params["resources"] in ("cpu=1", "cuda=1")
            assert context.params["preload"] == (PRELOAD,)
            assert not context.params["preload_argv"]


def test_a_worker_is_started_in_tests_as_on_the_page() -> None:
    first = next(words for words in dask_commands() if words[0] == "worker")
    assert [word for word in first if word not in ("--nthreads", "1")][2:] == list(CPU)


def test_what_the_verb_says_is_on_the_page() -> None:
    values = {"address": "tcp://HOST:8786", "target": "cpu", "slots": "1"}
    text = blocks(PAGE, "sh")[0]
    for name in ("install", "scheduler", "worker", "look"):
        assert COMMANDS[name].format(**values) in text.splitlines()


def test_the_options_of_the_ssh_recipe_are_dasks() -> None:
    (text,) = (block for block in blocks(PAGE, "bash") if "SSHCluster" in block)
    tree = ast.parse(text.split("<<'END'\n")[1].split("END\n")[0])
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.keywords)
    given = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    assert set(given) <= set(inspect.signature(distributed.SSHCluster).parameters)
    assert set(given["worker_options"]) <= set(inspect.signature(distributed.Nanny).parameters)


@pytest.mark.parametrize("role", ["scheduler", "worker", "client"])
def test_the_variables_for_tls_are_read_by_dask(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import dask.config
    from distributed.security import Security

    (text,) = (block for block in blocks(PAGE, "bash") if "REQUIRE_ENCRYPTION" in block)
    words = " ".join(line[7:] for line in text.splitlines() if line.startswith("export "))
    variables = dict(word.split("=", 1) for word in words.split())
    made: Any = Security
    with dask.config.set(_dotted(dask.config.collect_env(variables))):
        security: Any = made()
        assert security.require_encryption is True
        found = security.get_tls_config_for_role(role)
    assert {name: found[name] for name in ("ca_file", "cert", "key")} == {
        "ca_file": "ca.pem",
        "cert": "cert.pem",
        "key": "key.pem",
    }


def _dotted(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Leaves of a configuration by their whole names: a branch would replace Dask's own."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        whole = f"{above}{name}"
        found |= _dotted(value, f"{whole}.") if isinstance(value, dict) else {whole: value}
    return found
