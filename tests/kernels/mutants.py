"""Mutate the kernels and report which mutants their tests do not notice. Run by hand; takes minutes.

    python tests/kernels/mutants.py [--per-kernel 3] [--jobs 1] [--only NAME ...]

A mutant is one small change of one kernel: an operator, a comparison or a constant replaced, or a statement dropped.
The same seed draws the same mutants as long as the kernels stay the same. Survivors are either equivalent to the
original (a change that affects speed only) or behavior that no test checks.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[2]
KERNELS = [
    path.relative_to(ROOT)
    for folder in ("kernels", "problem/penalties", "problem/constraints")
    for path in sorted((ROOT / "src/terafactor" / folder).glob("*.py"))
]
TESTS = [
    path.relative_to(ROOT)
    for folder, names in (("kernels", "test_*.py"), ("problem", "test_[ps]*.py"))  # others read docs/
    for path in sorted((ROOT / "tests" / folder).glob(names))
]
SPEED_ONLY = {"prefetch_rows", "wait_for_all"}
"""Kernels whose mutants give the same results, or never end."""

SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.USub: ast.UAdd,
}  # fmt: skip
SECONDS = 120
"""CPU time after which a mutant counts as killed: it does not end."""


@dataclass(frozen=True)
class Mutant:
    """One changed file."""

    name: str
    """File, kernel, line and change."""

    kernel: str
    """Name of the kernel."""

    file: Path
    """Path of the file in the repository."""

    source: str
    """The whole file, changed."""


def mutate(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """Return what may replace a node, each with a description."""
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.BoolOp(op=op) | ast.UnaryOp(op=op) if type(op) in SWAPS:
            found = [("op", SWAPS[type(op)]())]
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            found = [("ops", [SWAPS[type(op)]()])]
        case ast.Constant(value=bool(value)):
            found = [("value", not value)]
        case ast.Constant(value=int(value) | float(value)):
            found = [("value", value + 1)]
        case _:
            found = []
    mutants = []
    for field, value in found:
        changed = copy.deepcopy(node)
        setattr(changed, field, value)
        mutants.append((f"{ast.unparse(node)} -> {ast.unparse(changed)}", changed))
    match node:
        case ast.AugAssign() | ast.Assign(targets=[ast.Subscript()]) | ast.Expr(value=ast.Call()):
            mutants.append((f"drop {ast.unparse(node)}", ast.Pass()))
        case ast.Continue() | ast.Break():
            mutants.append((f"drop {ast.unparse(node)}", ast.Pass()))
    return mutants


class Replace(ast.NodeTransformer):
    """Replaces one node of a tree."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, except calls of kernels that only affect speed."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in SPEED_ONLY:
            return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from walk(child)


def mutants_of(file: Path, per_kernel: int) -> Iterator[Mutant]:
    """Yield mutants of a file, the same number for each kernel that has as many."""
    tree = ast.parse((ROOT / file).read_text())
    for kernel in tree.body:
        if not isinstance(kernel, ast.FunctionDef) or kernel.name in SPEED_ONLY:
            continue
        if "jit" not in [ast.unparse(decorator) for decorator in kernel.decorator_list]:
            continue
        statements = kernel.body[1:] if ast.get_docstring(kernel) else kernel.body
        nodes = [node for statement in statements for node in walk(statement)]
        every = [(node, *mutant) for node in nodes for mutant in mutate(node)]
        chosen = random.Random(kernel.name).sample(every, min(per_kernel, len(every)))
        for node, change, new in chosen:
            # The transformer changes a tree in place: parse again, and find the same node by its place in the walk.
            again = ast.parse((ROOT / file).read_text())
            twin = next(t for t, n in zip(ast.walk(again), ast.walk(tree), strict=True) if n is node)
            source = ast.unparse(ast.fix_missing_locations(Replace(twin, new).visit(again)))
            place = f"{file.name}:{node.lineno} {kernel.name}"
            yield Mutant(f"{place}: {' '.join(change.split())[:90]}", kernel.name, file, source)


RUN = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
import pytest
failed = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *sys.argv[1:]])
from terafactor.kernels.jit import _kernels
print("called:", *(kernel.py_func.__name__ for kernel in _kernels if kernel.signatures))
sys.exit(failed)
"""


def calls() -> dict[str, set[str]]:
    """Return the kernels that each kernel calls, directly or through others, and itself."""
    found: dict[str, set[str]] = {}
    for file in KERNELS:
        for function in ast.parse((ROOT / file).read_text()).body:
            if isinstance(function, ast.FunctionDef):
                found[function.name] = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    for _ in found:  # as long as the longest chain of calls
        for name, called in found.items():
            found[name] = called.union([name], *(found[other] for other in called if other in found))
    return found


class Workshop:
    """A copy of the package with compiled kernels, in which mutants run one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        skip = shutil.ignore_patterns("__pycache__", "output", ".venv*")
        for name in ("src", "tests/kernels", "tests/problem"):
            shutil.copytree(ROOT / name, folder / name, ignore=skip)
        for name in ("pyproject.toml", "tests/conftest.py"):
            shutil.copy2(ROOT / name, folder / name)
        callees = calls()
        self.reached: dict[str, set[str]] = {}
        """Kernels that each file of tests runs."""
        for path in TESTS:
            if self.run(str(path)):
                raise SystemExit(f"{path} fails without a mutant:\n{(folder / 'log').read_text()}")
            called = (folder / "log").read_text().split("called:")[-1].split()
            self.reached[str(path)] = set().union(*(callees.get(name, set()) for name in called))
        os.rename(folder / "cache", folder / "compiled")

    def run(self, *names: str) -> bool:
        """Run files of tests; return whether one failed."""
        environment = os.environ | {
            "PYTHONPATH": str(self.folder / "src"),
            "NUMBA_CACHE_DIR": str(self.folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-c", RUN, *names]
        with open(self.folder / "log", "w") as log:
            done = subprocess.run(command, cwd=self.folder, env=environment, stdout=log, stderr=log, check=False)
        return done.returncode != 0

    def killer(self, mutant: Mutant) -> str | None:
        """Return the test that fails with a mutant, None if all pass."""
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        shutil.copytree(self.folder / "compiled", self.folder / "cache", copy_function=os.link)
        names = [name for name, kernels in self.reached.items() if mutant.kernel in kernels]
        if not names:
            return None
        target = self.folder / mutant.file
        target.write_text(mutant.source)
        try:
            if not self.run(*names):
                return None
        finally:
            shutil.copy2(ROOT / mutant.file, target)  # with its time, which Numba compares
        failed = [
            line.split()[1] for line in (self.folder / "log").read_text().splitlines() if line.startswith("FAILED")
        ]
        return failed[0].removeprefix("tests/") if failed else "crash or timeout"


def main() -> None:
    """Run the tests of kernels on every mutant and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-kernel", type=int, default=3, help="mutants of each kernel")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at the same time")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of mutants")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    arguments = parser.parse_args()
    mutants = [mutant for file in KERNELS for mutant in mutants_of(file, arguments.per_kernel)]
    mutants = [m for m in mutants if not arguments.only or any(part in m.name for part in arguments.only)]
    if arguments.list:
        print(*(mutant.name for mutant in mutants), f"{len(mutants)} mutants", sep="\n")
        return
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        free: Queue[Workshop] = Queue()
        for job in range(arguments.jobs):
            free.put(Workshop(Path(folder, str(job))))

        def run(mutant: Mutant) -> str | None:
            workshop = free.get()
            try:
                return workshop.killer(mutant)
            finally:
                free.put(workshop)

        survivors = 0
        for mutant, killer in zip(mutants, pool.map(run, mutants), strict=True):
            survivors += killer is None
            print(f"killed    {mutant.name}  [{killer}]" if killer else f"SURVIVED  {mutant.name}", flush=True)
    print(f"{len(mutants) - survivors} of {len(mutants)} mutants killed")


if __name__ == "__main__":
    main()
