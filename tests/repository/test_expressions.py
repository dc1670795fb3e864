"""No regular expression of a user runs in a process of the portal's own: the rule,
over all code of `apps/` and `capture/`.

What a test here finds either goes through `apps.core.domain.expressions.runs`, or is added to a list
with the reason.
"""

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = [
    path
    for folder in ("apps", "capture")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "migrations" not in path.parts
]
#: Functions and classes that give `re` or `re2` a text that is not written in them.
COMPILE = {
    ("capture/configuration.py", "_mask_names"): "the operator's setting, to check it",
    ("apps/archive/domain/comparison.py", "normalised"): "an escaped job ID",
    ("apps/archive/domain/search/search.py", "_cut"): "escaped words",
    ("apps/archive/domain/search/search.py", "_fitting"): "escaped words",
    ("apps/core/domain/secrets/masking.py", "Masker"): "the operator's setting",
    ("apps/core/domain/secrets/masking.py", "Rule"): "an admin's rule, which capture hosts run too",
    ("apps/core/domain/secrets/masking.py", "_compile"): "the rules above",
    ("apps/core/domain/secrets/patterns.py", "_compile"): "constants of the module",
    ("apps/diagnosis/engine/evidence/catalogue.py", "compile_pattern"): "see CALLERS",
    ("apps/diagnosis/engine/evidence/chain.py", "_compile"): "constants of the module",
    ("apps/diagnosis/engine/evidence/exit_codes.py", "program_ran"): "constants of the module",
    ("apps/diagnosis/engine/evidence/line_search.py", "_compile"): "see CALLERS",
    (
        "apps/production/domain/types/arguments.py",
        "Argument",
    ): "an admin's workflow type, on at most 10,000 characters",
}
#: What runs expressions of users, new or approved. Pages pass these to a process that is killed
#: after its budget.
RUN_EXPRESSIONS = {
    *(
        "compile_pattern",
        "regex_fault",
        "regex_faults",
        "set_fault",
        "first_lines",
        "catalogue_hits",
        "pack_marks_in",
    ),
    *(
        "Catalogue",
        "Re2Matcher",
        "LineSearch",
        "HyperscanMatcher",
        "OwnLevels",
        "current",
        "current_classifiers",
    ),
}
#: Who calls them all the same, outside the engine, which needs no settings and no database.
CALLERS = {
    (
        "apps/diagnosis/domain/verdicts/analyses.py",
        "current_classifiers",
    ): "approved ones, in a worker",
    ("apps/diagnosis/domain/verdicts/decisions.py", "current"): "its version only",
    (
        "apps/diagnosis/domain/verdicts/experience.py",
        "regex_fault",
    ): "written by the portal from an escaped line",
    ("apps/diagnosis/domain/known_errors/current.py", "Catalogue"): "approved ones, for workers",
    ("apps/diagnosis/domain/known_errors/current.py", "current"): "approved ones, for workers",
    ("apps/diagnosis/domain/log_page/outline.py", "compile_pattern"): "called by pack_marks_in",
    (
        "apps/diagnosis/domain/log_page/search.py",
        "LineSearch",
    ): "made only; its methods are passed on",
    (
        "apps/diagnosis/domain/reading/log_scans.py",
        "current_classifiers",
    ): "approved ones, in a worker",
    ("apps/diagnosis/domain/verdicts/reclassification.py", "current"): "approved ones, in a worker",
}


@cache
def parsed(path: Path) -> ast.Module:
    """Python before 3.11.5 fails if it looks for garbage while it makes the tree (gh-106905)."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """Return each call in a module with the name of the function or class at its top,
    "" for the module itself.
    """
    return [
        (getattr(top, "name", ""), node)
        for top in parsed(path).body
        for node in ast.walk(top)
        if isinstance(node, ast.Call)
    ]


def is_written_here(node: ast.expr) -> bool:
    """Whether an expression is made of texts in the code and constants of its module."""
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper()
        case ast.BinOp(left=left, right=right):
            return is_written_here(left) and is_written_here(right)
        case ast.JoinedStr(values=parts):
            return all(is_written_here(part) for part in parts)
        case (
            ast.FormattedValue(value=value)
            | ast.Call(func=ast.Attribute(value=value, attr="encode"))
        ):
            return is_written_here(value)
    return False


def test_expressions_are_written_in_the_code_or_listed():
    modules = {path.relative_to(ROOT).as_posix(): path for path in MODULES}
    compiled = {
        (name, top)
        for name, path in modules.items()
        for top, call in calls(path)
        if top
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in {"re", "re2"}
        and call.func.attr not in {"escape", "Options"}
        and not (call.args and is_written_here(call.args[0]))
    }
    assert compiled == set(COMPILE)


def test_users_expressions_are_passed_to_the_pool_and_not_called():
    callers = {
        (path.relative_to(ROOT).as_posix(), call.func.id)
        for path in MODULES
        if "apps/diagnosis/engine/" not in path.as_posix()
        for _, call in calls(path)
        if isinstance(call.func, ast.Name) and call.func.id in RUN_EXPRESSIONS
    }
    assert callers == set(CALLERS)
