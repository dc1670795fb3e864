"""Java servers for the tests, from published jars by name.

Maven downloads them once, into a cache outside the tree.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from dev.messages import SetupError

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "opsportal"
FETCH_SECONDS = 600

_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
_PROJECT = (
    "<project><modelVersion>4.0.0</modelVersion>"
    "<groupId>opsportal</groupId><artifactId>servers</artifactId>"
    "<version>1</version><packaging>pom</packaging><dependencies>{}</dependencies></project>"
)
_COPY_ONE = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def server_home(
    name: str, artifacts: Sequence[str], prepare: Callable[[Path], None] = lambda _: None
) -> Path:
    """Return the directory `name` of the cache: `jars/` with `artifacts`
    (`group:artifact:version`) and all they need.

    It is created once; `prepare` may then rearrange it. Raises `SetupError`.
    """

    def fill(home: Path) -> None:
        _fetch(artifacts, home)
        prepare(home)

    return cached_home(name, fill)


def cached_home(name: str, fill: Callable[[Path], None]) -> Path:
    """Return the directory `name` of the cache, which `fill` fills once. Raises `SetupError`."""
    home = CACHE / name
    if home.is_dir():
        return home
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not home.is_dir():  # nobody else was first
                unfinished = CACHE / f"{name}.unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
                fill(unfinished)
                unfinished.rename(home)
    except OSError as error:
        raise SetupError(f"{name}: {error}") from error
    return home


def fetch_file(artifact: str, into: Path) -> Path:
    """Copy one file, without what it needs, into a directory.

    It is `group:artifact:version:packaging`, and `:classifier` if it has one.

    Raises `SetupError`.
    """
    run_tool("mvn", "-B", "-q", _COPY_ONE, f"-Dartifact={artifact}", f"-DoutputDirectory={into}")
    _, name, version, packaging, *classifier = artifact.split(":")
    return into / f"{'-'.join([name, version, *classifier])}.{packaging}"


def run_tool(*command: str | Path) -> None:
    """Run a program to completion. Raises `SetupError` with its error message."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise SetupError(
            f"{command[0]} is not found: apt-get install default-jdk-headless maven"
        ) from None
    except subprocess.TimeoutExpired:
        raise SetupError(f"{command[0]} took more than {FETCH_SECONDS} s") from None
    if done.returncode:
        lines = [
            line for line in (done.stdout + done.stderr).splitlines() if "error" in line.lower()
        ]
        raise SetupError(
            f"{command[0]}: {lines[0].strip() if lines else f'exit status {done.returncode}'}"
        )


def _fetch(artifacts: Sequence[str], into: Path) -> None:
    dependencies = "".join(
        _DEPENDENCY.format(*map(escape, artifact.split(":"))) for artifact in artifacts
    )
    (into / "pom.xml").write_text(_PROJECT.format(dependencies))
    run_tool(
        *("mvn", "-B", "-q", "-f", into / "pom.xml", _COPY),
        *("-DincludeScope=runtime", f"-DoutputDirectory={into / 'jars'}"),
    )
