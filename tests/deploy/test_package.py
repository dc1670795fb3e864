"""The release that `make release` makes of this tree: what it refuses, what the wheel holds, and
that portal, capture and opsctl start from it outside a checkout.

One release is made for all tests.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution, version
from pathlib import Path
from urllib.parse import urlsplit

import django
import pytest
from django.db import connection
from packaging.requirements import Requirement

from dev.packaging.requirements import CAPTURE_PACKAGES, CHECKOUT_PACKAGES
from opsportal.version import VERSION

ROOT = Path(__file__).parents[2]
WHEEL = f"opsportal-{VERSION}-py3-none-any.whl"
pytestmark = pytest.mark.xdist_group("package")
GIT = {
    "GIT_AUTHOR_NAME": "Release",
    "GIT_AUTHOR_EMAIL": "release@example.org",
    "GIT_COMMITTER_NAME": "Release",
    "GIT_COMMITTER_EMAIL": "release@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def run(*command, cwd, code=0, **variables):
    """Return what a command prints, both streams."""
    environment = os.environ | GIT | variables
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def release(tree, code=0):
    return run(sys.executable, "-m", "dev.packaging.release", cwd=tree, code=code)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A repository with the files of this one, in one commit, not yet ready for a release."""
    tree = tmp_path_factory.mktemp("release") / "tree"
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in names.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    changelog = tree / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"\n## {VERSION}", "\n## of another"))
    (tree / "tests").mkdir()
    (tree / "tests/test_left_out.py").touch()
    run("git", "init", "--quiet", cwd=tree)
    commit(tree)
    return tree


def commit(tree):
    run("git", "add", "--all", cwd=tree)
    run("git", "commit", "--quiet", "--message", "Release", cwd=tree)


@pytest.fixture(scope="module")
def refusals(tree):
    """What the command says before the tree is ready, by what is wrong."""
    said = {"no section": release(tree, code=1)}
    changelog = tree / "CHANGELOG.md"
    changelog.write_text(f"## {VERSION} - 2026-11-29\n\n{changelog.read_text()}")
    said["dirty"] = release(tree, code=1)
    commit(tree)
    (tree / "apps/left_behind.py").touch()
    said["untracked"] = release(tree, code=1)
    (tree / "apps/left_behind.py").unlink()
    return said


@pytest.fixture(scope="module")
def dist(tree, refusals):
    """The directory of the release."""
    release(tree)
    return tree / "dist"


@pytest.fixture(scope="module")
def site(dist):
    """The contents of the wheel, as pip would install it."""
    site = dist.parents[1] / "site"
    zipfile.ZipFile(dist / WHEEL).extractall(site)
    return site


def test_release_is_refused_until_the_tree_is_ready(tree, refusals, dist):
    assert f"add ## {VERSION} - YYYY-MM-DD" in refusals["no section"]
    assert "first M CHANGELOG.md: commit them" in refusals["dirty"]
    assert "first ?? apps/left_behind.py: commit them" in refusals["untracked"]
    assert run("git", "tag", cwd=tree) == f"v{VERSION}\n"
    assert f"the tag v{VERSION} exists" in release(tree, code=1)


def test_builds_are_equal(tree, dist, tmp_path):
    """Also one of another directory, with other times and rights of the files."""
    copy = tmp_path / "elsewhere"
    run("git", "clone", "--quiet", tree, copy, cwd=tmp_path)
    (copy / "apps/__init__.py").chmod(0o600)
    seconds = run("git", "log", "-1", "--format=%ct", cwd=copy).strip()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    run(*command, cwd=copy, SOURCE_DATE_EPOCH=seconds)
    assert (tmp_path / WHEEL).read_bytes() == (dist / WHEEL).read_bytes()


def test_wheel_holds_what_the_portal_reads_and_nothing_else(site):
    files = site / "opsportal/files"
    for name in ("templates", "static", "docs", "deploy", "clients/ops-phase"):
        for path in (ROOT / name).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                assert (files / name / path.relative_to(ROOT / name)).is_file(), path
    for name in ("apps", "capture", "opsportal"):
        for path in (ROOT / name).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                assert (site / path.relative_to(ROOT)).is_file(), path
    assert {path.name for path in site.iterdir()} == {
        "apps",
        "capture",
        "opsctl",
        "opsportal",
        f"opsportal-{VERSION}.dist-info",
    }
    names = {path.name for path in site.rglob("*")}
    assert not names & {"tests", "test_left_out.py", "conftest.py", ".env", "var", "__pycache__"}


def test_base_needs_what_capture_and_opsctl_import(site):
    metadata = (site / f"opsportal-{VERSION}.dist-info/METADATA").read_text()
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    base = [line for line in needs if "extra ==" not in line]
    assert len(base) == len(CAPTURE_PACKAGES) + 2
    for name in (*CAPTURE_PACKAGES, "click", "httpx"):
        assert any(re.match(f"Requires-Dist: {name}[<>=]", line) for line in base), name
    assert any("django<" in line and "extra == 'portal'" in line for line in needs)
    assert not any(name in metadata for name in CHECKOUT_PACKAGES)


def test_parts_and_checksums(dist):
    parts = json.loads((dist / f"opsportal-{VERSION}.cdx.json").read_text())
    assert parts["bomFormat"] == "CycloneDX"
    assert parts["metadata"]["component"]["name"] == "opsportal"
    versions = {part["name"].lower(): part["version"] for part in parts["components"]}
    assert versions["django"] == version("django")
    assert "://" not in "".join(part.get("purl", "") for part in parts["components"])
    checked = run("sha256sum", "--check", "SHA256SUMS", cwd=dist)
    assert checked.count(": OK\n") == 3


@pytest.fixture(scope="module")
def environment(dist):
    """A new environment with the wheel alone, installed without a network."""
    place = dist.parents[1] / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", place, cwd=dist)
    pip = [sys.executable, "-m", "pip", "--python", place / "bin/python", "install", "--quiet"]
    run(*pip, "--no-index", "--find-links", dist, "--no-deps", "opsportal", cwd=dist)
    return place


def start(environment, program, *arguments, packages, code=0, **variables):
    """Run a program of the package in an empty directory, with these packages on the path."""
    empty = environment.parent / "empty"
    empty.mkdir(exist_ok=True)
    command = [environment / "bin" / program, *arguments]
    return run(*command, cwd=empty, code=code, PYTHONPATH=str(packages), **variables)


@pytest.fixture
def portal(environment, db):
    """Run `opsportal` with the packages of the portal and the database of the test."""

    def portal(*arguments):
        parts = urlsplit(os.environ["DATABASE_URL"])
        url = parts._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
        packages = Path(django.__file__).parents[1]
        return start(
            environment,
            "opsportal",
            *arguments,
            packages=packages,
            DATABASE_URL=url,
            DEBUG="true",  # pages need no collected static files
        )

    return portal


PAGES = """
from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from apps.core.web.documentation import page
print(settings.BASE_DIR)
print(Client().get(reverse("accounts:login"), headers={"host": settings.ALLOWED_HOSTS[0]}, secure=True).text)
print(page("production").title)
print(*[finders.find(name) for name in ("opsportal/icon.svg", "clients/ops-phase")])
call_command("migrate", check=True, verbosity=0)
call_command("check")
"""


def test_portal_runs_outside_a_checkout(portal, environment):
    assert portal("version") == f"opsportal {VERSION}\n"
    files = portal("files").strip()
    assert files.startswith(str(environment))
    assert "--answers FILE" in portal("setup", "--help")
    # One process: each start of Django takes seconds.
    pages = portal("shell", "--no-imports", "-c", PAGES)
    assert pages.splitlines()[0] == files
    assert "no issues" in pages
    assert '<form class="body stack" method="post">' in pages
    assert "Running opsportal for a site" in pages
    static_files = f"{files}/static/opsportal/icon.svg {files}/clients/ops-phase/ops-phase"
    assert static_files in pages.splitlines()


def link_packages(directory, name):
    """Link a package of this environment and all that it needs into a directory."""
    if (directory / f"{name}.linked").exists():
        return
    (directory / f"{name}.linked").touch()
    package = distribution(name)
    for file in package.files:
        link = directory / file.parts[0]
        if ".." not in file.parts and "__pycache__" not in file.parts[0] and not link.exists():
            link.symlink_to(package.locate_file(file.parts[0]))
    for line in package.requires or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            link_packages(directory, requirement.name.lower())


def test_capture_and_opsctl_need_no_django(environment, tmp_path):
    for name in (*CAPTURE_PACKAGES, "click", "httpx"):
        link_packages(tmp_path, name)
    assert not (tmp_path / "django").exists()
    assert "--spool" in start(environment, "opsportal", "capture", "--help", packages=tmp_path)
    refusal = start(
        environment,
        *("opsportal", "capture", "--cluster", "alps", "--spool", "/nowhere"),
        packages=tmp_path,
        code=1,
        DATABASE_URL="",
        SECRET_KEY="",
    )
    assert refusal.startswith("error: ")
    assert "Traceback" not in refusal
    assert "requests" in start(environment, "opsctl", "--help", packages=tmp_path)
    refusal = start(environment, "opsportal", "check", packages=tmp_path, code=1)
    assert refusal == "error: only capture is installed: pip install 'opsportal[portal]'\n"
