"""What `python -m benchmarks.installation --upgrade` installs, and how it counts what users lose."""

import subprocess

import pytest

from benchmarks.installation.load import Answer, summarize
from benchmarks.installation.repository import PREVIOUS_VERSION, make_repository

PROJECT = '[project]\nname = "opsportal"\nversion = "{version}"\n'


def run_git(directory, *arguments):
    author = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    command = ["git", *author, *arguments]
    done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def source(tmp_path):
    directory = tmp_path / "source"
    directory.mkdir()
    run_git(directory, "init", "--quiet")
    return directory


def commit(source, version, code):
    (source / "pyproject.toml").write_text(PROJECT.format(version=version))
    (source / "code.py").write_text(code)
    run_git(source, "add", ".")
    run_git(source, "commit", "--quiet", "--message", code)
    return run_git(source, "rev-parse", "HEAD")


def test_two_releases_are_tagged(source, tmp_path):
    previous = commit(source, "1.0.0", "old")
    commit(source, "1.1.0", "new")
    repository = make_repository(tmp_path / "bare", previous, source=source)
    assert (repository.previous_version, repository.version) == ("1.0.0", "1.1.0")
    assert run_git(repository.path, "rev-parse", "v1.0.0") == previous
    assert run_git(repository.path, "show", "v1.1.0:code.py") == "new"


def test_commit_of_the_same_version_gets_a_lower_one(source, tmp_path):
    previous = commit(source, "1.1.0", "old")
    commit(source, "1.1.0", "new")
    repository = make_repository(tmp_path / "bare", previous, source=source)
    assert repository.previous_version == PREVIOUS_VERSION
    tag = f"v{PREVIOUS_VERSION}"
    assert run_git(repository.path, "diff", "--name-only", previous, tag) == "pyproject.toml"
    project = run_git(repository.path, "show", f"{tag}:pyproject.toml") + "\n"
    assert project == PROJECT.format(version=PREVIOUS_VERSION)
    assert run_git(repository.path, "show", f"{tag}:code.py") == "old"


def answers(*rows):
    return [Answer("/", status, began, ended) for status, began, ended in rows]


def test_requests_that_wait_do_not_fail():
    summary = summarize(answers((200, 0, 1), (200, 1, 9), (200, 2, 9.5)))
    assert summary.failures == []
    assert summary.longest_outage == 0
    assert summary.longest_pause == 8
    assert summary.longest_answer == 8


def test_outage_ends_with_a_good_answer():
    summary = summarize(
        answers((200, 0, 1), (502, 1, 2), ("refused", 3, 3), (200, 4, 5), (502, 6, 7), (200, 8, 9))
    )
    assert [answer.began for answer in summary.failures] == [1, 3, 6]
    assert summary.longest_outage == 2
    assert summary.longest_pause == 4
