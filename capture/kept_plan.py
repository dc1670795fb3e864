"""The plan of the last start, beside the journal: the next start need not ask Django,
where nothing has changed.

It holds secrets, as the environment it is made from does: its file is of the mode 0600, and used
only where it belongs to the user who starts. Read before all else, so it imports little.
"""

import marshal
import os
import sys

TYPE_CHECKING = False  # `typing` takes longer to load than all that is here
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    KeptPlan = tuple[
        bytes, Sequence[str]
    ]  # a pickled plan, and the directories that it is to watch at once

_FILE = "plan"
_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = f"{_HERE}/.."
#: By which a plan is made: another version of them may make another one.
_CODE = (
    *(f"{_HERE}/{name}.py" for name in ("plan", "kept_plan")),
    f"{_ROOT}/apps/archive/management/commands/capture.py",
    *(f"{_ROOT}/opsportal/{name}.py" for name in ("env", "settings")),
)


def keep(
    kept: "KeptPlan",
    directory: str,
    *,
    arguments: "Sequence[str]",
    environment: "Mapping[str, str]",
    names: "Iterable[str]",
) -> None:
    """Keep a plan in the journal's directory, made of the settings of these names.

    Raises `OSError`.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    settings = []
    for name in sorted(names):
        settings += [name, f"{name}_FILE"]

    plan, watched = kept
    content = marshal.dumps(
        [settings, _made_of(arguments, environment, settings), plan, list(watched)]
    )
    written = f"{directory}/{_FILE}.new"
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)
    os.replace(written, f"{directory}/{_FILE}")


def take(*, arguments: "Sequence[str]", environment: "Mapping[str, str]") -> "KeptPlan | None":
    """Return the plan kept by the last start, unless something of which it was made has changed
    since.
    """
    journal = _given("--journal", arguments) or environment.get("CAPTURE_JOURNAL")
    cluster = _given("--cluster", arguments) or environment.get("CAPTURE_CLUSTER")
    try:
        with open(
            f"{journal or environment.get('VAR_DIR', 'var') + '/journal'}/{cluster}/{_FILE}", "rb"
        ) as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                return None
            settings, made_of, plan, watched = marshal.load(file)  # noqa: S302 -- of this program
            return (
                (plan, watched) if made_of == _made_of(arguments, environment, settings) else None
            )
    except (OSError, ValueError, EOFError, TypeError):  # none, or of another version of Python
        return None


def _made_of(
    arguments: "Sequence[str]", environment: "Mapping[str, str]", settings: "Sequence[str]"
) -> list[object]:
    """Return everything that the plan depends on."""
    variables = {name: environment[name] for name in settings if name in environment}

    files = list(_CODE)
    files += [path for name, path in variables.items() if name.endswith("_FILE")]
    versions = [
        (status.st_ino, status.st_size, status.st_mtime_ns) for status in map(os.stat, files)
    ]

    host = os.uname().nodename
    return [sys.version, sys.prefix, host, os.getcwd(), list(arguments), variables, versions]


def _given(option: str, arguments: "Sequence[str]") -> str | None:
    """Return the value of an option of the command line, as it is written in full."""
    for place, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == option:
            return value or next(iter(arguments[place + 1 :]), None)
    return None
