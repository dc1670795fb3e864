"""Rules of the repository that no linter knows."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands

from opsportal.version import VERSION

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("apps", "capture", "opsportal", "dev")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "migrations" not in path.parts
]
#: What an app knows without its edges: pages, API, tasks, commands.
DOMAIN = [
    path
    for path in sorted((ROOT / "apps").glob("*/**/*.py"))
    if path.relative_to(ROOT).parts[2].removesuffix(".py") in {"domain", "models", "pages"}
]
#: Modules that only web/ and other edges of an app import.
OF_THE_EDGES = (
    *("django.forms", "django.utils.html", "django.utils.safestring"),
    *("asyncio", "concurrent", "socket", "threading"),
)
#: Modules of domains with a lock, since the threads of a web process share what they keep. They
#: start no thread.
HOLD_LOCKS = {
    "apps/statusboard/domain/monitoring/intake_journal.py": "the file that the process writes",
    "apps/statusboard/domain/monitoring/source_tokens.py": "the tokens that the process knows",
}
#: Modules whose SQL reads tables of lower apps, because the ORM cannot express it.
READ_JOBS = {
    "apps/archive/domain/links.py": "the last attempt of each task nearest to a submission",
    "apps/diagnosis/domain/causes/common/columns.py": "a binary copy of a month of jobs",
    "apps/diagnosis/domain/causes/impact/count.py": "overlaps of jobs with an incident",
    "apps/recovery/domain/decisions/decide.py": "new verdicts without a decision, thousands at once",
    "apps/search/domain/line_totals.py": "the stages of an hour of jobs, with each template",
    "apps/search/domain/where_else.py": "as many failed jobs of some hours as have a line",
    "dev/packaging/facts.py": "what a database of any release says of itself",
    "apps/progress/domain/stage_history.py": "quantiles of the jobs of a request",
}
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_folder_is_crowded():
    """A reader finds a module by the names of its folder; of more than 20 he reads none."""
    files = [
        path
        for folder in ("apps", "capture", "opsportal", "tests", "templates")
        for path in (*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.html"))
        if "migrations" not in path.parts and path.name not in {"__init__.py", "conftest.py"}
    ]
    sizes = Counter(path.parent for path in files)
    assert {name(folder): size for folder, size in sizes.items() if size > 20} == {}


def test_a_name_stands_for_few_modules_of_domains():
    domains = list((ROOT / "apps").glob("*/domain/**/*.py"))
    names = Counter(path.name for path in domains if path.name != "__init__.py")
    assert {module: count for module, count in names.items() if count > 3} == {}


def test_files_and_functions_keep_their_size():
    assert [name(path) for path in SOURCES if path.read_text().count("\n") > 650] == []
    functions = [
        (path, node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [
        f"{name(path)}: {node.name} is {node.end_lineno - node.lineno + 1} lines long"
        for path, node in functions
        if node.end_lineno - node.lineno >= 90
    ] == []


@pytest.mark.parametrize(
    "unsafe",
    [
        r"\sstyle=|\son[a-z]+=|<style|javascript:",
        r"<script(?![^>]*\ssrc=)",
        r"\|\s*safe\b|autoescape\s+off",
    ],
)
def test_templates_hold_nothing_inline_and_trust_nothing(unsafe):
    assert [name(path) for path in TEMPLATES if re.search(unsafe, path.read_text())] == []


def imported_by(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


def test_domain_knows_nothing_of_http():
    pairs = [(name(path), each) for path in DOMAIN for each in imported_by(path)]
    assert [pair for pair in pairs if pair[1].startswith(("django.http", "django.shortcuts"))] == []


def test_domain_makes_no_html_and_starts_no_threads():
    leaks = set()
    for path in DOMAIN:
        in_domain = path.relative_to(ROOT).parts[2].removesuffix(".py") == "domain"
        if in_domain and any(module.startswith(OF_THE_EDGES) for module in imported_by(path)):
            leaks.add(name(path))
    assert leaks == set(HOLD_LOCKS)


def test_sql_names_tables_of_other_apps_only_to_read_many_jobs():
    apps = {path.name for path in (ROOT / "apps").iterdir() if path.is_dir()}
    table = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE|TABLE)\s+\"?({'|'.join(apps)})_[a-z]+")
    readers = set()
    for path in SOURCES:
        own = path.relative_to(ROOT).parts[1]
        statements = set(table.findall(path.read_text()))
        foreign = {statement for statement, app in statements if app != own}
        assert foreign <= {"FROM", "JOIN"}, f"{name(path)} writes to a table of another app"
        if foreign:
            readers.add(name(path))
    assert readers == set(READ_JOBS)


def test_every_command_is_documented():
    text = "".join(page.read_text() for page in PAGES)
    ours = [command for command, app in get_commands().items() if app.startswith("apps.")]
    assert [command for command in ours if f"manage.py {command}" not in text] == []


def test_links_of_the_documentation_lead_somewhere():
    links = [
        (page, link)
        for page in PAGES
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    ]
    assert [
        f"{name(page)}: {link}" for page, link in links if not (page.parent / link).exists()
    ] == []


def test_no_comment_stands_behind_the_end_of_a_statement_of_several_lines():
    """The formatter leaves it there when it wraps a statement; it belongs above."""
    behind = re.compile(r"""^\s*[)\]}][^"'\n]*  # (?!fmt:|type:|noqa|pragma)""", re.MULTILINE)
    modules = []
    for folder in ("apps", "benchmarks", "capture", "dev", "opsportal", "tests"):
        modules += [
            path for path in (ROOT / folder).rglob("*.py") if behind.search(path.read_text())
        ]
    assert modules == []


def test_texts_say_that_a_server_is_down_or_unavailable():
    away = re.compile(
        r"(?:broker|database|Kafka|portal|provider|Redis|server|sink|that|it)\s"
        r"(?:is|was|are|be|may be|counts as) away\b"
    )
    texts = [*PAGES, *(ROOT / "apps").rglob("*.py")]
    assert [path for path in texts if away.search(path.read_text())] == []


def test_recipes_name_files_that_exist():
    spans = re.findall(
        r"`((?:apps|docs|opsportal|templates|tests)/[\w./-]+)`",
        (ROOT / "CONTRIBUTING.md").read_text(),
    )
    # APP, NAME and the like are to be filled in.
    paths = [span for span in spans if not re.search("[A-Z]{3}", span)]
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_tasks_that_are_sent_exist():
    from opsportal.celery import app as celery_app

    celery_app.autodiscover_tasks(force=True)
    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    code = "".join(path.read_text() for path in (ROOT / "apps").rglob("*.py"))
    enqueued = set(re.findall(r'(?:enqueue\(|TASK = )"(\w+\.\w+)"', code))
    assert len(scheduled) > 40
    assert len(enqueued) > 15
    assert (
        scheduled | enqueued | settings.CELERY_TASK_ROUTES.keys()
    ) - celery_app.tasks.keys() == set()


def test_tasks_are_named_after_their_app_and_not_their_module():
    """A module that moves would change the names of messages on their way."""
    from opsportal.celery import app as celery_app

    celery_app.autodiscover_tasks(force=True)
    tasks = {
        name: task for name, task in celery_app.tasks.items() if not name.startswith("celery.")
    }
    expected = {f"{task.__module__.split('.')[1]}.{task.__name__}" for task in tasks.values()}
    assert tasks.keys() == expected


def test_every_dependency_says_what_for():
    names = ("requirements", "requirements-dev", "requirements-hyperscan", "requirements-traces")
    for name in names:
        lines = (ROOT / f"{name}.txt").read_text().splitlines()
        assert [line for line in lines if line and line[0] not in "#-" and " # " not in line] == []


def test_readme_is_short():
    assert (ROOT / "README.md").read_text().count("\n") <= 80


def test_changelog_has_the_versions_with_their_dates_below_what_is_unreleased():
    text = (ROOT / "CHANGELOG.md").read_text()
    first, *versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert first == "Unreleased"
    assert all(
        re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+ - 20[0-9]{2}-[0-9]{2}-[0-9]{2}", heading)
        for heading in versions
    )
    released = [tuple(map(int, version.partition(" ")[0].split("."))) for version in versions]
    assert released == sorted(released, reverse=True)
    # It is less until this version is released.
    assert released[0] <= tuple(map(int, VERSION.split(".")))
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {
        "Upgrade",
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }
