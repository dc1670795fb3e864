"""The processor time of programs, and a limit of it by the kernel's control groups."""

import os
import time
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
#: Fifty times that of a process.
_WEIGHT = 5_000
#: Joins the group `$1`, and becomes the command behind it.
_JOIN = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'


class ProcessorLimit:
    """A control group, of version 1 or 2, whose processes have `processors` together.

    Its weight lets it have them on a busy machine, too: otherwise a group has that of one process.
    """

    def __init__(self, name: str, processors: float) -> None:
        quota_us = round(processors * _PERIOD_US)
        if (_ROOT / "cgroup.controllers").exists():
            (_ROOT / "cgroup.subtree_control").write_text("+cpu")
            self._group = _ROOT / name
            self._group.mkdir(exist_ok=True)
            (self._group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
            (self._group / "cpu.weight").write_text(str(_WEIGHT))
        else:
            self._group = _ROOT / "cpu" / name
            self._group.mkdir(exist_ok=True)
            (self._group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self._group / "cpu.cfs_quota_us").write_text(str(quota_us))
            (self._group / "cpu.shares").write_text(str(_WEIGHT * 1024 // 100))

    def command(self, command: list[str]) -> list[str]:
        """Return the command line that runs a command within the limit."""
        return ["sh", "-c", _JOIN, "sh", str(self._group), *command]

    def remove(self) -> None:
        """Remove the group once its last process, which was killed, is gone."""
        deadline = time.monotonic() + 5
        while self._group.exists() and time.monotonic() < deadline:
            with suppress(OSError):
                self._group.rmdir()
            time.sleep(0.05)


def program_of(pid: int) -> str:
    """Return the name of a process's program, as the kernel has it; nothing if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def processor_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children that have ended; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return 0.0
    ticks = map(int, status.split()[11:15])
    return sum(ticks) / os.sysconf("SC_CLK_TCK")
