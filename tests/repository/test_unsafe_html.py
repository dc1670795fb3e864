"""Text of jobs, alerts and strangers reaches no HTML unescaped, and no link,
style or script at all.

What a test here finds is either escaped, or reviewed and then added to its list with the reason.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = [path for path in sorted((ROOT / "apps").rglob("*.py")) if "migrations" not in path.parts]
TEMPLATES = sorted(
    path for kind in ("html", "svg", "txt") for path in (ROOT / "templates").rglob(f"*.{kind}")
)
PAGES = [path for path in TEMPLATES if path.suffix in {".html", ".svg"}]
#: Functions that make HTML of parts by themselves; each escapes every part that is not its own.
MADE_BY_HAND = {
    ("apps/archive/web/highlight.py", "highlight"),
    ("apps/core/web/documentation.py", "html_of"),
    ("apps/core/web/documentation.py", "page"),
    ("apps/core/web/templatetags/back_office.py", "with_titles"),
    ("apps/core/web/templatetags/formatting.py", "visible"),
    ("apps/core/web/text_fields.py", "with_links"),
    ("apps/statusboard/web/templatetags/day_marks.py", "day_marks"),
    ("apps/statusboard/web/templatetags/day_marks.py", "plain_marks"),
}
SAFE = {"mark_safe", "SafeString", "SafeText", "SafeData"}
FORMATS = {"format_html", "format_html_join"}
#: Variables that a link may begin with: routes of the portal, and addresses whose scheme is checked
#: where they enter.
LINKS = re.compile(
    r"""
    (\w+\.)*get_absolute_url        # of a model: a route
    |address|back|base|here|make_known|page|place|raw        # from {% url %} or reverse()
    |request\.(path|get_full_path)  # of the page itself: a route
    |((error|model)\.)?\w+_url|page\.\w+_query        # of views and Django's site: reverse()
    |((chip|preset)\.)?query                 # of views: “?” and urlencode()
    |(cause|change|count|error|failures|fix|item|job|next_button|option|reason|link|place|service_now|step|task|turn\.action|waits_for)\.url
    |results\.(jobs|scripts|datasets)_url
    |change\.(target\|request_url|proposal_url)
    |incident\.url                  # http or https: statusboard.feeds.base.Alert, and URLField of form and API
    |service\.runbook               # http or https: URLField of the admin
    |row\.link                      # http, https or ftp: URLField of known errors
    |header\.url_primary|choice\.query_string\|iriencode  # of Django's lists: “?” and urlencode()
    |view\.path                     # a path of the portal: accounts.web.saved_views.ViewForm
    |number\.link                   # http, https or a path: quality.domain.evaluation
    """,
    re.VERBOSE,
)
_ATTRIBUTE = re.compile(
    r"""\b(href|src|action|formaction|poster|cite|data|srcset|hx-\w+)\s*=\s*["']?\{\{\s*(.*?)\s*\}\}""",
    re.IGNORECASE,
)
_SCRIPTED = re.compile(
    r"""<[^>]*\s(style|on\w+)\s*=\s*("[^"]*\{[{%]|'[^']*\{[{%])""", re.IGNORECASE
)
_IN_SCRIPT = re.compile(r"<(script|style)\b[^>]*>[^<]*\{\{", re.IGNORECASE)
_UNQUOTED = re.compile(r"<[^>]*\s[\w-]+=\{\{")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def calls(path: Path) -> Iterator[tuple[str, str, ast.Call, ast.AST]]:
    """Yield the name of each called function, with the function or class that it is called in."""
    tree = ast.parse(path.read_text())
    for top in tree.body:
        for node in ast.walk(top):
            if isinstance(node, ast.Call):
                name = (
                    node.func.attr
                    if isinstance(node.func, ast.Attribute)
                    else getattr(node.func, "id", "")
                )
                yield name, getattr(top, "name", ""), node, top


def constants(node: ast.AST, scope: ast.AST) -> bool:
    """Whether an expression is text of the source alone,
    also by a name that has only such values in its function.
    """
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.IfExp):
        return constants(node.body, scope) and constants(node.orelse, scope)
    if isinstance(node, ast.Name):
        values = [
            assigned.value
            for assigned in ast.walk(scope)
            if isinstance(assigned, ast.Assign | ast.AugAssign)
            and any(getattr(target, "id", "") == node.id for target in targets(assigned))
        ]
        return bool(values) and all(constants(value, scope) for value in values)
    return False


def targets(assigned: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    return assigned.targets if isinstance(assigned, ast.Assign) else [assigned.target]


def test_no_text_is_called_safe_that_was_not_reviewed():
    found = {
        (relative(path), where)
        for path in MODULES
        for name, where, call, scope in calls(path)
        if name in SAFE and not (call.args and constants(call.args[0], scope))
    }
    assert found == MADE_BY_HAND


def test_formats_of_html_are_text_of_the_source():
    formats = {
        f"{relative(path)}:{call.lineno}"
        for path in MODULES
        for name, _, call, scope in calls(path)
        if name in FORMATS
        for argument in call.args[: 2 if name == "format_html_join" else 1]
        if not constants(argument, scope)
    }
    assert formats == set()


def test_templates_escape_everything():
    assert [
        relative(path)
        for path in TEMPLATES
        if re.search(r"\|\s*(safe|safeseq)\b", path.read_text())
    ] == []
    for unsafe in (re.compile("autoescape off"), _SCRIPTED, _IN_SCRIPT, _UNQUOTED):
        assert [relative(path) for path in PAGES if unsafe.search(path.read_text())] == []


def test_links_begin_with_what_was_checked():
    begins = [
        (relative(path), begin)
        for path in PAGES
        for _, begin in _ATTRIBUTE.findall(path.read_text())
    ]
    assert [pair for pair in begins if not LINKS.fullmatch(pair[1])] == []


def test_text_is_made_visible_after_it_is_cut():
    """Else a cut goes through the middle of what was escaped."""
    for path in PAGES:
        assert not re.search(r"\|visible\|(truncate|slice|cut)", path.read_text()), path
