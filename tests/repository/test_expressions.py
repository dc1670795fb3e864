"""No regular expression of a user runs in a process of the portal's own: the rule,
over all code of `apps/` and `capture/`.

What a test here finds either goes through `apps.core.domain.expressions.runs`, or is added to a list
with the reason.
"""

import ast
import gc
import re
from functools import cache
from pathlib import Path

import pytest

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
    ("apps/archive/domain/comparison.py", "normalise"): "an escaped job ID",
    ("apps/archive/domain/search/search.py", "_cut"): "escaped words",
    ("apps/archive/domain/search/search.py", "_fitting"): "escaped words",
    ("apps/core/domain/secrets/masking.py", "Masker"): "the operator's setting",
    (
        "apps/core/domain/secrets/masking.py",
        "MaskPattern",
    ): "an admin's rule, for capture hosts too",
    ("apps/core/domain/secrets/masking.py", "_compile"): "the rules above",
    ("apps/core/domain/secrets/patterns.py", "_compile"): "constants of the module",
    ("apps/diagnosis/engine/evidence/catalogue.py", "compile_pattern"): "see CALLERS",
    ("apps/diagnosis/engine/evidence/chain.py", "_compile"): "constants of the module",
    ("apps/diagnosis/engine/evidence/exit_codes.py", "program_ran"): "constants of the module",
    ("apps/core/domain/expressions/line_search.py", "_compile"): "see CALLERS",
    ("apps/diagnosis/engine/evidence/matchers.py", "Re2Matcher"): "see CALLERS",
    ("apps/diagnosis/engine/evidence/messages.py", "_load"): "lines of messages.csv",
    ("apps/search/domain/query/matcher.py", "_word_spans"): "escaped words",
    (
        "apps/production/domain/types/arguments.py",
        "Argument",
    ): "an admin's workflow type, on at most 10,000 characters",
}
#: What runs expressions of users, new or approved. Pages pass these to a process that is killed
#: after its budget.
RUN_EXPRESSIONS = {
    "compile_pattern",
    "regex_fault",
    "regex_faults",
    "set_fault",
    "first_lines",
    "catalogue_hits",
    "pack_marks_in",
    "KnownErrorCatalogue",
    "Re2Matcher",
    "LineSearch",
    "HyperscanMatcher",
    "OwnLevels",
    "current_catalogue",
    "current_classifiers",
}
#: Who calls them all the same, outside the engine, which needs no settings and no database.
CALLERS = {
    (
        "apps/diagnosis/domain/verdicts/analyses.py",
        "current_classifiers",
    ): "approved ones, in a worker",
    ("apps/diagnosis/domain/verdicts/judged_jobs.py", "current_catalogue"): "its version only",
    (
        "apps/diagnosis/domain/verdicts/experience.py",
        "regex_fault",
    ): "written by the portal from an escaped line",
    ("apps/diagnosis/domain/known_errors/current.py", "KnownErrorCatalogue"): "approved ones",
    (
        "apps/diagnosis/domain/known_errors/current.py",
        "current_catalogue",
    ): "approved ones, for workers",
    ("apps/diagnosis/domain/log_page/outline.py", "compile_pattern"): "called by pack_marks_in",
    (
        "apps/diagnosis/domain/log_page/search.py",
        "LineSearch",
    ): "made only; its methods are passed on",
    (
        "apps/diagnosis/domain/reading/log_scans.py",
        "current_classifiers",
    ): "approved ones, in a worker",
    (
        "apps/diagnosis/domain/verdicts/reclassification.py",
        "current_catalogue",
    ): "approved ones, in a worker",
    (
        "apps/search/domain/engine/expressions.py",
        "LineSearch",
    ): "made here, and matched in the pool",
}

#: Modules that give an expression to the database, which has no budget for it.
DATABASE = {
    "apps/archive/domain/links.py": "the escaped key of an experiment",
    "apps/production/domain/lifecycle/steps.py": "written in the code",
}


@cache
def parsed(path: Path) -> ast.Module:
    """Python before 3.11.5 fails if it looks for garbage while it makes the tree (gh-106905)."""
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        gc.enable()


def calls(tree: ast.Module) -> list[tuple[str, ast.Call]]:
    """Return each call in a module with the name of the function or class at its top,
    "" for the module itself.
    """
    return [
        (getattr(top, "name", ""), node)
        for top in tree.body
        for node in ast.walk(top)
        if isinstance(node, ast.Call)
    ]


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Return what each name stands for that a module imports, such as `re.compile`."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def called_name(call: ast.Call, names: dict[str, str]) -> str:
    """Return the full name of an imported function that is called, "" for any other call."""
    parts = []
    node = call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *reversed(parts)])


def compiling_calls(tree: ast.Module) -> set[str]:
    """Return which functions and classes give `re` or `re2` a text that is not written there."""
    names = imported_names(tree)
    tops = set()
    for top, call in calls(tree):
        module, _, function = called_name(call, names).partition(".")
        is_compiling = module in {"re", "re2"} and function not in {"escape", "Options"}
        if top and is_compiling and not (call.args and is_written_here(call.args[0])):
            tops.add(top)
    return tops


def run_calls(tree: ast.Module) -> set[str]:
    """Return which functions that run expressions of users a module calls, by whatever name."""
    names = imported_names(tree)
    called = set()
    for _, call in calls(tree):
        name = called_name(call, names)
        if not name and isinstance(call.func, ast.Name):
            name = f"apps.diagnosis.{call.func.id}"  # of this module
        function = name.rpartition(".")[2]
        is_ours = name.startswith(("apps.diagnosis.", "apps.core.domain.expressions."))
        if is_ours and function in RUN_EXPRESSIONS:
            called.add(function)
    return called


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
    compiled = set()
    for path in MODULES:
        name = path.relative_to(ROOT).as_posix()
        compiled |= {(name, top) for top in compiling_calls(parsed(path))}
    assert compiled == set(COMPILE)


def test_users_expressions_are_passed_to_the_pool_and_not_called():
    callers = set()
    for path in MODULES:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("apps/diagnosis/engine/"):
            callers |= {(name, function) for function in run_calls(parsed(path))}
    assert callers == set(CALLERS)


@pytest.mark.parametrize(
    "code",
    [
        "import re\ndef f(text): re.compile(text)",
        "import re as regex\ndef f(text): regex.search(text, '')",
        "from re import compile as make\ndef f(text): make(text)",
        "def f(text):\n    import re2\n    re2.Set.SearchSet().Add(text)",
        "import re\nclass f:\n    def g(self, text): return [re.sub(text, '', '')]",
    ],
)
def test_every_spelling_of_an_expression_is_found(code):
    assert compiling_calls(ast.parse(code)) == {"f"}


@pytest.mark.parametrize(
    "code",
    [
        "from apps.diagnosis.catalogue import compile_pattern\ndef f(text): compile_pattern(text)",
        "from apps.diagnosis.catalogue import compile_pattern as make\ndef f(text): make(text)",
        "from apps.diagnosis import catalogue\ndef f(text): catalogue.compile_pattern(text)",
    ],
)
def test_every_spelling_of_a_call_is_found(code):
    assert run_calls(ast.parse(code)) == {"compile_pattern"}


def test_the_database_runs_no_expression_of_users():
    lookups = re.compile(r"__i?regex\b|\bSIMILAR TO\b|\bregexp_\w+\(", re.IGNORECASE)
    modules = {
        path.relative_to(ROOT).as_posix() for path in MODULES if lookups.search(path.read_text())
    }
    assert modules == set(DATABASE)
