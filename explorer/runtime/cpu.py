"""The CPU runtime: LLVM IR to machine code by llvmlite, cached on disk; loading; launching; timing.

The only module that imports llvmlite, and only inside functions: it runs in worker processes, which
may be killed, because an LLVM fatal error or a bad kernel takes its whole process along.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from explorer.check import Bounds, Verdict, poison
from explorer.runtime.base import Array, Binary, CompileError, LibraryLaunch
from explorer.runtime.cache import cached_file, read_cached
from explorer.runtime.idle import wait_until_alone
from explorer.runtime.memory import aligned_empty, plain_copy, read_only_copy, returned
from ir.kernel import Argument, Kernel
from ir.program import Program
from ir.target import Hardware

_PRELOADED = (  # slow to import; what only makes text is none of a search's own concern
    "ir.targets.cpu.candidates", "ir.targets.cpu.lower", "ir.targets.cpu.llvm",
    "ir.targets.cpu.entry", "explorer.exporters.library",
)  # fmt: skip
_BODY = "tilewright_called_body"
_CHAIN_ROUNDS = 4_000
_CHAIN_CYCLES = 4 * 8 * _CHAIN_ROUNDS


@dataclass(frozen=True, slots=True)
class CodeTarget:
    """For which machine code is generated, as LLVM names it."""

    cpu: str
    features: str
    triple: str
    version: str

    @property
    def key(self) -> str:
        return f"{self.version}|{self.triple}|{self.cpu}|{self.features}"


class CpuRuntime:
    """See `explorer.runtime.base.Runtime`."""

    name = "cpu"
    settle = 0.0
    apart = False
    exclusive = True

    def preload(self, cache_dir: Path, task: str = "run") -> None:
        for module in _PRELOADED:
            import_module(module)
        pool(cache_dir)

    def prepare(self, device: int = 0) -> None:
        """Get permission for tiles, start the pool, and keep clear of its workers' processors."""
        request_tile_permission()
        ready = pool()
        ready.repeat(ready.idle, None, 2, 1)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    def rest(self) -> None:
        """Workers that wait for the next kernel sleep at once, and BLAS's have gone to sleep."""
        if _pools:
            _pools[0].rest()
        wait_until_alone()

    def compile(self, kernel: Kernel, cache_dir: Path) -> Binary:
        return compile_kernel(kernel, cache_dir)

    def spills(self, kernel: Kernel) -> int:
        return count_spills(kernel)

    def disassembly(self, kernel: Kernel) -> str:
        return str(target_machine().emit_assembly(parse(kernel.text("llvm"))))

    def peaks(self, hardware: Hardware, cache_dir: Path) -> dict[str, float]:
        from explorer.runtime.cpu_peaks import measure_peaks

        return measure_peaks(hardware, cache_dir)

    def prepare_library(self) -> None:
        """Nothing: BLAS has its own threads, which may run on all processors."""

    def library(
        self, program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> LibraryLaunch:
        from explorer.runtime.numpy_library import NumpyLaunch

        return NumpyLaunch(program, inputs, outputs)

    def assemble(self, texts: Sequence[str]) -> bytes:
        return assemble(texts)

    def load(self, binary: Binary) -> CpuKernel:
        return load(binary)

    def place(self, array: Array) -> Array:
        return read_only_copy(array, _storage_name(array))

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return aligned_empty(shape, dtype, guard=True)

    def given(self, array: Array) -> Array:
        return plain_copy(array)

    def returned(self, shape: tuple[int, ...], dtype: str) -> Array:
        return returned(shape, dtype)

    def calling(self, kernel: CpuKernel, inputs: Sequence[Array]) -> CpuCalling:
        return CpuCalling(kernel, inputs)

    def put(self, array: Array, values: Array) -> None:
        array[...] = values

    def arrays(self) -> Any:
        return np

    def compiled_arrays(self, cache_dir: Path) -> Path:
        return cache_dir / "none"

    def fetch(self, array: Array) -> Array:
        return array

    def poison(self, array: Array, dtype: str, turn: int = 0) -> None:
        poison(array, dtype, turn)

    def judge(self, bounds: Bounds, array: Array) -> Verdict:
        return bounds.judge(array)

    def clock_ghz(self) -> float | None:
        return clock_ghz()


@cache
def llvm() -> Any:
    """llvmlite's binding, initialised for this machine."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@cache
def host() -> CodeTarget:
    """This machine. Hypervisors may report another model; its instruction set tells the truth."""
    binding = llvm()
    features = binding.get_host_cpu_features()
    name = binding.get_host_cpu_name()
    has_tiles = features.get("amx-tile") and features.get("avx512fp16")
    if has_tiles and name not in ("sapphirerapids", "emeraldrapids", "graniterapids"):
        name = "sapphirerapids"
    flags = features.flatten()
    if features.get("avx512f"):
        flags += ",-prefer-256-bit"
    version = ".".join(map(str, binding.llvm_version_info))
    return CodeTarget(name, flags, binding.get_process_triple(), version)


def target_machine(optimisation: int = 2) -> Any:
    """A new code generator for the host. An execution engine consumes the one it is given."""
    machine = host()
    return (
        llvm()
        .Target.from_triple(machine.triple)
        .create_target_machine(
            cpu=machine.cpu, features=machine.features, opt=optimisation, reloc="pic"
        )
    )


@cache
def _emitter() -> Any:
    return target_machine()


def parse(text: str) -> Any:
    """A verified module for the host; raises CompileError with LLVM's words."""
    binding = llvm()
    try:
        module = binding.parse_assembly(text)
        module.triple = host().triple
        module.data_layout = str(_emitter().target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(str(error).strip()) from None
    return module


def emit_object(text: str) -> bytes:
    """Relocatable code of an LLVM module, without IR passes: its author has vectorised it."""
    code: bytes = _emitter().emit_object(parse(text))
    return code


def assemble(texts: Sequence[str]) -> bytes:
    """Relocatable code of several LLVM modules linked into one.

    What the last one defines is visible to linkers, everything else is the object's own.
    """
    llvm().initialize_native_asmparser()  # for the definitions of what processes share
    modules = [parse(text) for text in texts]
    visible = {value.name for value in _defined(modules[-1])}
    whole = modules[0]
    for module in modules[1:]:
        whole.link_in(module)
    for value in _defined(whole):
        if value.name not in visible:
            value.linkage = "internal"
    machine = target_machine()
    tidy = llvm().create_new_module_pass_manager()
    tidy.add_global_dead_code_eliminate_pass()
    options = llvm().create_pipeline_tuning_options(speed_level=0)
    tidy.run(whole, llvm().create_pass_builder(machine, options))
    code: bytes = machine.emit_object(whole)
    return code


def _defined(module: Any) -> list[Any]:
    """Functions and variables that a module defines, but for those that LLVM itself reads."""
    values = [*module.functions, *module.global_variables]
    return [v for v in values if not v.is_declaration and not v.name.startswith("llvm.")]


def compile_kernel(kernel: Kernel, cache_dir: Path) -> Binary:
    """Machine code of `kernel` in `cache_dir`, made unless an intact copy is there."""
    path = cached_object(kernel.text("llvm"), kernel.key, cache_dir)
    return Binary(
        kernel.key, str(path), kernel.entry, kernel.threads, kernel.arguments, kernel.notes
    )


def cached_object(text: str, key: str, cache_dir: Path) -> Path:
    """The object file of an LLVM text under `key`, the LLVM version and the host."""
    return cached_file(cache_dir, f"{key}|{host().key}", ".o", lambda: emit_object(text))


def _engine(code: bytes) -> Any:
    """An execution engine holding one object file."""
    binding = llvm()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target_machine())
    engine.add_object_file(binding.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


@dataclass(frozen=True, slots=True)
class Pool:
    """The thread pool in this process; `repeat(body, args, threads, times)` launches.

    `rest()` returns when all its workers sleep, which they do until the next launch.
    """

    engine: Any
    repeat: Any
    rest: Any
    chain: Any
    idle: int


_pools: list[Pool] = []


def pool(cache_dir: Path | None = None) -> Pool:
    """The pool, compiled (or found in the cache) and mapped once per process."""
    if not _pools:
        _pools.append(_map_pool(cache_dir))
    return _pools[0]


def _map_pool(cache_dir: Path | None) -> Pool:
    """Map the pool and let kernels see its symbols."""
    from ir.targets.cpu.pool import SYMBOLS, pool_llvm

    text = pool_llvm()
    if cache_dir is None:
        code = emit_object(text)
    else:
        key = hashlib.sha256(text.encode()).hexdigest()
        code = read_cached(cached_object(text, key, cache_dir))
    engine = _engine(code)
    for symbol in SYMBOLS:
        llvm().add_symbol(symbol, engine.get_function_address(symbol))
    word = ctypes.c_int64
    repeat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, word, word)
    chain = ctypes.CFUNCTYPE(word, word, word)
    return Pool(
        engine,
        repeat(engine.get_function_address("tilewright_repeat")),
        ctypes.CFUNCTYPE(None)(engine.get_function_address("tilewright_rest")),
        chain(engine.get_function_address("tilewright_clock_chain")),
        engine.get_function_address("tilewright_idle"),
    )


@dataclass(frozen=True, slots=True)
class CpuLaunch:
    """A kernel with its pointers; keeps the code and the arrays behind them alive."""

    body: int
    pointers: Any
    threads: int
    engine: Any
    arrays: tuple[Array, ...]

    def __call__(self, times: int = 1) -> float:
        repeat = pool().repeat
        start = time.perf_counter_ns()
        repeat(self.body, self.pointers, self.threads, times)
        return (time.perf_counter_ns() - start) * 1e-9


class CpuKernel:
    """Machine code of one kernel, mapped; callable on arrays."""

    def __init__(self, binary: Binary) -> None:
        pool()
        self.binary = binary
        self._engine = _engine(read_cached(Path(binary.path)))
        self._body: int = self._engine.get_function_address(binary.entry)
        if not self._body:
            raise CompileError(f"the kernel's module does not define {binary.entry}")

    def bind(self, operands: Sequence[Array]) -> CpuLaunch:
        given = iter(operands)
        arrays = tuple(
            _workspace(slot, argument) if argument.role == "workspace" else next(given)
            for slot, argument in enumerate(self.binary.arguments)
        )
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        return CpuLaunch(self._body, pointers, self.binary.threads, self._engine, arrays)

    def entry(self) -> tuple[Any, object]:
        """The kernel as a C function of its operands, like that of an exported library.

        Its workspaces are this process's; what is returned besides must outlive the function.
        """
        arguments = self.binary.arguments
        kept = {
            slot: _workspace(slot, argument)
            for slot, argument in enumerate(arguments)
            if argument.role == "workspace"
        }
        fixed = {slot: array.ctypes.data for slot, array in kept.items()}
        llvm().add_symbol(_BODY, self._body)  # for the engine that is made next
        engine = _engine(_entry_code(self.binary.threads, len(arguments), tuple(fixed.items())))
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(arguments) - len(fixed)))
        return kind(engine.get_function_address("tilewright_entry")), (engine, kept, self)

    def __call__(self, *operands: Array) -> float:
        """Run once on inputs and outputs in order; returns the seconds."""
        return self.bind(operands)()

    def close(self) -> None:
        self._engine.close()


@lru_cache(maxsize=8)
def _entry_code(threads: int, count: int, fixed: tuple[tuple[int, int], ...]) -> bytes:
    """The machine code of an entry: kernels of one program, timed in turns, have the same."""
    from ir.targets.cpu.entry import entry_llvm

    return emit_object(entry_llvm(_BODY, threads, count, dict(fixed)))


class CpuCalling:
    """Calls of the function that an exported module has, whose results live as long as usual: the
    last ones until the next are there."""

    def __init__(self, kernel: CpuKernel, inputs: Sequence[Array]) -> None:
        from explorer.exporters.library import calling_layer

        entry, self._kept = kernel.entry()
        self._function = calling_layer(kernel.binary.operands, entry)
        self._inputs = tuple(inputs)
        self._outputs = [a.name for a in kernel.binary.operands if a.role == "output"]
        self._last: Any = None

    @property
    def results(self) -> Mapping[str, Array]:
        arrays = self._last if isinstance(self._last, tuple) else (self._last,)
        return dict(zip(self._outputs, arrays, strict=True))

    def __call__(self, times: int = 1) -> float:
        function, inputs, result = self._function, self._inputs, self._last
        start = time.perf_counter_ns()
        for _ in range(times):
            result = function(*inputs)
        seconds = (time.perf_counter_ns() - start) * 1e-9
        self._last = result
        return seconds


def load(binary: Binary) -> CpuKernel:
    """Map the machine code of `binary` into this process."""
    return CpuKernel(binary)


_arena: dict[int, Array] = {}


def _workspace(slot: int, argument: Argument) -> Array:
    """Scratch memory, kept from kernel to kernel (fresh pages are slow), full of 0xFF at first."""
    have = _arena.get(slot)
    if have is None or have.nbytes < argument.bytes:
        have = aligned_empty((argument.bytes,), "u8", guard=True)
        have[...] = 0xFF
        _arena[slot] = have
    unused = (have.nbytes - argument.bytes) // 64 * 64
    return have[unused:]


def clock_ghz() -> float | None:
    """Clock of the core we are on: time of a chain of instructions of known latency."""
    chain = pool().chain
    best = min(_seconds_of(chain) for _ in range(3))
    return round(_CHAIN_CYCLES / best * 1e-9, 3)


def _seconds_of(chain: Any) -> float:
    start = time.perf_counter_ns()
    chain(_CHAIN_ROUNDS, 0x9E3779B97F4A7C15 - (1 << 64))
    return (time.perf_counter_ns() - start) * 1e-9


def request_tile_permission() -> bool:
    """Ask Linux for AMX tile state; must come before threads start. False where there is none."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18
    return bool(ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0)


def count_spills(kernel: Kernel) -> int:
    """Vector spills and reloads in the innermost loops of the kernel's machine code."""
    generator = target_machine()
    generator.set_asm_verbosity(True)
    return spills_in(generator.emit_assembly(parse(kernel.text("llvm"))))


def spills_in(assembly: str) -> int:
    """Spill and reload comments inside blocks that LLVM marks as part of an innermost loop."""
    inner, count, headers = False, 0, _innermost(assembly)
    for line in assembly.splitlines():
        label = re.match(r"\.?L?BB(\d+_\d+):|# %bb\.\d+:", line)
        if label:
            inner = label.group(1) in headers if label.group(1) else False
        owner = re.search(r"in Loop: Header=BB(\d+_\d+)", line)
        if owner:
            inner = owner.group(1) in headers
        count += inner and bool(re.search(r"-byte (Folded )?(Spill|Reload)", line))
    return count


def _innermost(assembly: str) -> frozenset[str]:
    """Labels of blocks whose comments say that they head a loop without loops inside."""
    comment = r"(?:[^\n]*Parent Loop[^\n]*\n|\s*#[^\n]*\n)*?"
    pattern = rf"BB(\d+_\d+):[^\n]*\n?{comment}[^\n]*=>\s*This Inner Loop Header"
    return frozenset(re.findall(pattern, assembly))


def _storage_name(array: Array) -> str:
    names = {"bool": "bool", "uint8": "u8", "int8": "i8", "int32": "i32", "int64": "i64"}
    names |= {"int16": "i16", "uint32": "u32"}
    names |= {"uint16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
    return names[array.dtype.name]
