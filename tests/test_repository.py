"""Rules of the repository that no linter knows."""

import ast
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands

from opsportal.version import VERSION

ROOT = Path(__file__).parents[1]
SOURCES = [
    path
    for folder in ("apps", "opsportal", "dev")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "migrations" not in path.parts
]
#: What an app knows without its edges: pages, API, tasks, commands.
DOMAIN = [
    path
    for path in sorted((ROOT / "apps").glob("*/**/*.py"))
    if path.relative_to(ROOT).parts[2].removesuffix(".py") in {"domain", "models", "pages"}
]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_files_and_functions_keep_their_size(path):
    text = path.read_text()
    assert text.count("\n") <= 500
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{node.name} is {node.end_lineno - node.lineno + 1} lines long"


@pytest.mark.parametrize("path", TEMPLATES, ids=name)
def test_templates_hold_nothing_inline_and_trust_nothing(path):
    text = path.read_text()
    assert not re.search(r"\sstyle=|\son[a-z]+=|<style|javascript:", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert not re.search(r"\|\s*safe\b|autoescape\s+off", text)


@pytest.mark.parametrize("path", DOMAIN, ids=name)
def test_domain_knows_nothing_of_http(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert [each for each in imported if each.startswith(("django.http", "django.shortcuts"))] == []


def test_every_command_is_documented():
    text = "".join(page.read_text() for page in PAGES)
    ours = [command for command, app in get_commands().items() if app.startswith("apps.")]
    assert [command for command in ours if f"manage.py {command}" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_the_documentation_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_recipes_name_files_that_exist():
    spans = re.findall(r"`((?:apps|docs|opsportal|templates|tests)/[\w./-]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    paths = [span for span in spans if not re.search("[A-Z]{3}", span)]  # APP, NAME and the like are to be filled in
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_beat_names_tasks_that_exist():
    from opsportal import celery_app

    celery_app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert scheduled - set(celery_app.tasks) == set()


def test_every_dependency_says_what_for():
    for file in ("requirements.txt", "requirements-dev.txt"):
        lines = (ROOT / file).read_text().splitlines()
        assert [line for line in lines if line and line[0] not in "#-" and " # " not in line] == []


def test_readme_is_short():
    assert (ROOT / "README.md").read_text().count("\n") <= 80


def test_changelog_has_the_version_with_its_date_below_what_is_unreleased():
    text = (ROOT / "CHANGELOG.md").read_text()
    first, *versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert first == "Unreleased"
    assert all(re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+ - 20[0-9]{2}-[0-9]{2}-[0-9]{2}", each) for each in versions)
    assert versions[0].startswith(f"{VERSION} - ")
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
