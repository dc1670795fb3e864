"""The repository of the guide's examples: this one, with a tag for each release."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev.processes import ROOT

#: The commit of 1.1.0, the release before this one.
PREVIOUS_COMMIT = "c60f4843752b"
#: The version of a former commit that has none of its own yet.
PREVIOUS_VERSION = "0.2.9"
_VERSION_LINE = re.compile('^version = "(.*)"$', re.MULTILINE)


@dataclass(frozen=True)
class Repository:
    """A bare repository with the tags `vVERSION` of two releases."""

    path: Path
    previous_version: str
    version: str


def make_repository(path: Path, previous_commit: str, *, source: Path = ROOT) -> Repository:
    """Make a repository in a new directory, from the one of `source`.

    The last commit is tagged with its version, and the previous one with its own, or with
    `PREVIOUS_VERSION` if no release lies between them.
    """
    _git("clone", "--quiet", "--bare", str(source), str(path))
    version = _version_of(path, "HEAD")
    _git("tag", f"v{version}", "HEAD", directory=path)
    previous_version = _version_of(path, previous_commit)
    if previous_version == version:
        previous_version = PREVIOUS_VERSION
        previous_commit = _commit_with_version(path, previous_commit, previous_version)
    _git("tag", f"v{previous_version}", previous_commit, directory=path)
    return Repository(path, previous_version, version)


def _version_of(path: Path, commit: str) -> str:
    project = _git("show", f"{commit}:pyproject.toml", directory=path)
    [version] = _VERSION_LINE.findall(project)
    return version


def _commit_with_version(path: Path, commit: str, version: str) -> str:
    """Return a commit that differs from this one in its version alone."""
    project = _git("show", f"{commit}:pyproject.toml", directory=path) + "\n"
    project = _VERSION_LINE.sub(f'version = "{version}"', project)
    blob = _git("hash-object", "-w", "--stdin", directory=path, text=project)
    _git("read-tree", commit, directory=path)
    _git("update-index", "--cacheinfo", f"100644,{blob},pyproject.toml", directory=path)
    tree = _git("write-tree", directory=path)
    message = f"release: {version}, for the benchmark of an upgrade"
    return _git("commit-tree", tree, "-p", commit, "-m", message, directory=path)


def _git(*arguments: str, directory: Path | None = None, text: str = "") -> str:
    author = {}
    for role in ("AUTHOR", "COMMITTER"):
        author |= {f"GIT_{role}_NAME": "opsportal", f"GIT_{role}_EMAIL": "opsportal@example.org"}
    return subprocess.run(
        # The checkout may belong to another user than root.
        ["git", "-c", "safe.directory=*", *arguments],
        cwd=directory,
        env=os.environ | author,
        input=text,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
