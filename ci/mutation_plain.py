"""The kernels as plain Python: what NUMBA_DISABLE_JIT=1 alone leaves undone.

The compiler's integers wrap at 64 bits and Python's do not; and a few functions exist only as
machine instructions. With a shift that wraps, and those functions written out, every kernel below
the ones of the threads device runs uncompiled, and its lines can be edited and traced.
"""

from __future__ import annotations

import ast
import ctypes
from types import CodeType, ModuleType
from typing import Final

import numpy as np

WORD: Final = 1 << 64
THREADS: Final = "# --- threads device"
"""The header of the kernels that need atomics and addresses: they have no plain form."""


def shift_left(value: int, by: int) -> np.int64:
    """`value << by` as the machine does it: the bits above the 64th are lost."""
    bits = (int(value) << int(by)) % WORD
    return np.int64(bits - WORD if bits >> 63 else bits)


def lowest_bit(word: int) -> int:
    """Index of the lowest set bit of a word of 64 bits; 64 where there is none."""
    return (int(word) & -int(word)).bit_length() - 1 if word else 64


def leading_zeros(word: int) -> int:
    """Zero bits above the highest set bit of a word of 64 bits."""
    return 64 - (int(word) % WORD).bit_length()


def copy_bytes(target: int, source: int, nbytes: int) -> None:
    """Copy between two addresses."""
    ctypes.memmove(int(target), int(source), int(nbytes))


INSTRUCTIONS: Final = {
    "_lowest_bit": lowest_bit,
    "_leading_zeros": leading_zeros,
    "copy_bytes": copy_bytes,
}
"""Kernels' names of machine instructions, and what stands in for each."""


class _Shifts(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.LShift):
            return node
        name = ast.Name("shift_left_plain", ast.Load())
        return ast.copy_location(ast.Call(name, [node.left, node.right], []), node)


def plain_code(source: str, path: str) -> CodeType:
    """The kernels' text compiled with shifts that wrap; lines are those of the text."""
    tree = ast.fix_missing_locations(_Shifts().visit(ast.parse(source)))
    code: CodeType = compile(tree, path, "exec", dont_inherit=True)
    return code


def prepare(module: ModuleType) -> None:
    """Before `plain_code` runs in the module: the name its shifts call."""
    vars(module)["shift_left_plain"] = shift_left
    np.seterr(all="ignore")  # compiled arithmetic wraps and divides by zero without a word


def bind(module: ModuleType) -> None:
    """After it ran: plain functions in place of those that are machine instructions."""
    for name, function in INSTRUCTIONS.items():
        assert name in vars(module), f"the kernels have no {name} any more"
        vars(module)[name] = function
