"""Small edits of a module's text, one at a time: what a general mutation run plants.

Every edit replaces one expression or statement of the source, found in its syntax tree. What the
program only says (messages, docstrings, annotations) and what it only checks (`assert`, and a
strict `zip`, which a correct program never feels) is left alone. The order is that of the source,
so a seeded sample is the same everywhere.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeGuard

COMPARE: Final[dict[type[ast.cmpop], tuple[str, ...]]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
ARITHMETIC: Final[dict[type[ast.operator], str]] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.FloorDiv: "*",
    ast.Mod: "//",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
TWINS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Edit:
    """One mutant: characters [start, end) of the module's text become `new`.

    `lines` (first, last) are those of the statement around it, or of its header where it has a
    body: a program that runs none of them cannot notice. (0, 0) outside functions. `nth` counts
    equal edits of one function from 1.
    """

    module: str
    line: int
    where: str
    start: int
    end: int
    old: str
    new: str
    lines: tuple[int, int] = (0, 0)
    nth: int = 1

    @property
    def name(self) -> str:
        """Says the edit, and survives edits elsewhere in the module; no two are equal."""
        nth = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.module}:{self.where}: {self.old} -> {self.new}{nth}"

    def apply(self, source: str) -> str:
        """The module's text with the edit."""
        assert source[self.start : self.end] == self.old, f"{self.name} does not fit its source"
        return source[: self.start] + self.new + source[self.end :]


def edits_of(module: str, source: str) -> list[Edit]:
    """All edits of a module, in the order of its text."""
    return _Reader(module, source).read()


class _Reader:
    """Walks a module's tree and notes what can be replaced where."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source
        lines = source.splitlines(keepends=True)
        assert source.isascii(), f"{module}: columns of a tree are bytes, so keep to ASCII"
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._found: list[Edit] = []
        self._lines = (0, 0)

    def read(self) -> list[Edit]:
        self._walk(ast.parse(self._source), "")
        found = sorted(self._found, key=lambda edit: (edit.start, edit.end, edit.new))
        seen: Counter[str] = Counter()
        for at, edit in enumerate(found):
            seen[edit.name] += 1
            found[at] = replace(edit, nth=seen[edit.name])
        return found

    def _walk(self, node: ast.AST, where: str) -> None:
        if isinstance(node, ast.stmt):
            self._lines = _header(node) if self._lines != (0, 0) else (0, 0)
        if isinstance(node, ast.FunctionDef):
            self._lines = _header(node)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            where = f"{where}.{node.name}".lstrip(".")
            children: list[ast.AST] = list(node.body)
        else:
            children = [child for child in ast.iter_child_nodes(node) if _matters(child)]
        if isinstance(node, ast.AnnAssign):
            children = [node.value] if node.value is not None else []
        if where:
            for start, end, new in self._replacements(node):
                self._note(node, where, start, end, new)
        lines = self._lines
        for child in children:
            if _matters(child):
                self._walk(child, where)
                self._lines = lines

    def _note(self, node: ast.AST, where: str, start: int, end: int, new: str) -> None:
        old = self._source[start:end]
        line = getattr(node, "lineno", 0)
        edit = Edit(self._module, line, where, start, end, old, new, self._lines)
        self._found.append(edit)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self._source[start:end]

    def _replacements(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self._text(node.left), self._text(node.comparators[0])
            for sign in COMPARE.get(type(node.ops[0]), ()):
                yield *self._span(node), f"{left} {sign} {right}"
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            sign = ARITHMETIC[type(node.op)]
            yield *self._span(node), f"({self._text(node.left)}) {sign} ({self._text(node.right)})"
        elif isinstance(node, ast.BoolOp):
            sign = "or" if isinstance(node.op, ast.And) else "and"
            parts = (f"({self._text(value)})" for value in node.values)
            yield *self._span(node), f" {sign} ".join(parts)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            yield *self._span(node), self._text(node.operand)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield *self._span(node), str(not node.value)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield *self._span(node), str(node.value + 1)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in TWINS:
                yield *self._span(node.func), TWINS[node.func.id]
        elif isinstance(node, (ast.IfExp, ast.If)):
            yield *self._span(node.test), f"not ({self._text(node.test)})"
        elif isinstance(node, ast.AugAssign) or _is_call(node):
            yield *self._span(node), "pass"
        elif isinstance(node, (ast.Continue, ast.Break)):
            yield *self._span(node), "break" if isinstance(node, ast.Continue) else "continue"


def _header(node: ast.stmt) -> tuple[int, int]:
    """Lines of a statement; of one with a body, those before the body (at least its first)."""
    assert node.end_lineno is not None
    body = getattr(node, "body", [])
    last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
    return node.lineno, last


def _is_call(node: ast.AST) -> TypeGuard[ast.stmt]:
    """A call made for what it does, its result unused."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _matters(node: ast.AST) -> bool:
    """Whether an edit below this node could change what a correct program does."""
    if isinstance(node, (ast.Assert, ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr)):
        return False
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return False  # a docstring
    if isinstance(node, ast.keyword):
        return node.arg != "strict"
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
        return node.test.id != "TYPE_CHECKING"
    return not isinstance(node, ast.arguments)
