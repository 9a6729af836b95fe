"""Recurrent cells, whose products read the state before each step."""

from __future__ import annotations

from ir import Graph, cast, contract, recur, sigmoid, tanh
from ir.program import Program
from ir.values import normal


def gru(b: int, t: int, d: int, dtype: str = "bf16") -> Program:
    """A gated cell: three products of the state, which its own elements are mixed with."""
    g = Graph("gru")
    steps, batch, k, n = g.axes(t=t, b=b, k=d, n=d)
    x = {s: g.input("X" + s, (steps, batch, n), dtype) for s in "zrn"}
    w = {s: g.input("W" + s, (k, n), dtype, values=normal(d**-0.5)) for s in "zrn"}
    h = g.state(steps, (batch, k))
    z, r, u = (contract(cast(h, dtype), w[s], over=k) for s in "zrn")
    z, r = sigmoid(x["z"] + z), sigmoid(x["r"] + r)
    after = (1 - z.at(n=k)) * tanh(x["n"] + r * u).at(n=k) + z.at(n=k) * h
    g.output("H", after, dtype, (steps, batch, k))
    g.output("last", recur(h, after), "f32", (batch, k))
    return g.program()


def lstm(b: int, t: int, d: int, dtype: str = "bf16") -> Program:
    """A cell with a memory, whose output is read by the next step's product alone."""
    g = Graph("lstm")
    steps, batch, k, n, q = g.axes(t=t, b=b, k=d, n=d, q=4)
    w = g.input("W", (q, k, n), dtype, values=normal(d**-0.5))
    h, c = g.state(steps, (batch, k)), g.state(steps, (batch, n))
    gates = contract(cast(h, dtype), w, over=k) + g.input("X", (steps, batch, q, n), dtype)
    i, f, o, u = (gates.at(q=number) for number in range(4))
    memory = sigmoid(f) * c + sigmoid(i) * tanh(u)
    out = sigmoid(o) * tanh(memory)
    g.output("last", recur(h, out.at(n=k)), "f32", (batch, k))
    g.output("C", recur(c, memory), "f32", (batch, n))
    return g.program()


def rnn(b: int, t: int, d: int, dtype: str = "bf16") -> Program:
    """The simplest cell, with its weights turned."""
    g = Graph("rnn")
    steps, batch, k, n = g.axes(t=t, b=b, k=d, n=d)
    w = g.input("W", (n, k), dtype, values=normal(d**-0.5))
    h = g.state(steps, (batch, k))
    out = tanh(contract(cast(h, dtype), w, over=k) + g.input("X", (steps, batch, n), dtype))
    g.output("H", out, dtype, (steps, batch, n))
    g.output("last", recur(h, out.at(n=k)), "f32", (batch, k))
    return g.program()
