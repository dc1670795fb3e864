"""How plainly the code is written: what is packed into a line, per 1,000 lines,
and variables that say nothing.

`python -m dev.plain` prints the counts, and fails above the limits.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from dev.messages import say
from dev.processes import ROOT

FOLDERS = ("apps", "capture", "dev", "opsportal")
#: Names that fit everything and say nothing.
VAGUE_NAMES = frozenset({"found", "one", "each", "wanted", "given", "words"})
#: Maximum number per 1,000 lines. These limits only ever go down.
MOST_PER_1000_LINES = {
    "comprehensions": 20,
    "nested comprehensions": 0.0,
    "conditional expressions": 12.9,
    "tuple assignments": 4.0,
    "lines over 100 columns": 0.0,
}
MOST_VAGUE_NAMES = 0

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def count_packed(source: str) -> Counter[str]:
    """Count what the limits are for in the source of a module."""
    counts: Counter[str] = Counter()
    for line in source.splitlines():
        if len(line) > 100:
            counts["lines over 100 columns"] += 1

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _COMPREHENSIONS):
            counts["comprehensions"] += 1
            if len(node.generators) > 1 or _holds_comprehension(node):
                counts["nested comprehensions"] += 1
        elif isinstance(node, ast.IfExp):
            counts["conditional expressions"] += 1
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            counts["tuple assignments"] += 1
    return counts


def _holds_comprehension(comprehension: ast.AST) -> bool:
    inner = (node for node in ast.walk(comprehension) if node is not comprehension)
    return any(isinstance(node, _COMPREHENSIONS) for node in inner)


def vague_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each vague variable and parameter;
    attributes of classes are none.
    """
    tree = ast.parse(source)
    attributes: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                attributes.update(map(id, _targets_of(statement)))

    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            name = node.arg
        elif (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and id(node) not in attributes
        ):
            name = node.id
        else:
            continue
        if name in VAGUE_NAMES:
            yield node.lineno, name


def _targets_of(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    return []


def modules(folders: Iterable[str] = FOLDERS) -> Iterator[Path]:
    """Yield the modules that are judged; migrations are generated."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path


def main() -> int:
    lines = 0
    counts: Counter[str] = Counter()
    vague: list[str] = []
    for path in modules():
        source = path.read_text()
        lines += source.count("\n")
        counts += count_packed(source)
        vague += [f"{path.relative_to(ROOT)}:{line}: {name}" for line, name in vague_names(source)]

    per_1000_lines = {name: counts[name] * 1000 / lines for name in MOST_PER_1000_LINES}
    too_many = [name for name, most in MOST_PER_1000_LINES.items() if per_1000_lines[name] > most]
    listed = ", ".join(
        f"{name} {per_1000_lines[name]:.1f} (at most {most})"
        for name, most in MOST_PER_1000_LINES.items()
    )
    say(f"plain: per 1,000 lines {listed}; {len(vague)} vague names (at most {MOST_VAGUE_NAMES})")
    if len(vague) > MOST_VAGUE_NAMES:
        too_many += vague
    for what in too_many:
        say(f"too many: {what}")
    return int(bool(too_many))


if __name__ == "__main__":
    sys.exit(main())
