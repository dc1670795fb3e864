"""System packages that some tests need: which, whether they are installed,
and their installation.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
POLICY = Path("/usr/sbin/policy-rc.d")


@dataclass(frozen=True)
class Part:
    """Programs that the tests with this mark call, and the packages that provide them."""

    programs: tuple[str, ...]
    packages: tuple[str, ...]

    def missing(self) -> list[str]:
        """Return the programs that are missing."""
        return [name for name in self.programs if not shutil.which(name, path=PATH)]


# The servers themselves: dev/jars.py.
JAVA = Part(("java", "javac", "mvn"), ("default-jdk-headless", "maven"))
PARTS = {
    "slurm": Part(
        ("sudo", "munged", "slurmctld", "slurmd", "slurmdbd", "sbatch", "sacct", "mariadbd"),
        ("sudo", "munge", "slurmctld", "slurmd", "slurmdbd", "slurm-client", "mariadb-server"),
    ),
    "browser": Part(("chromium-headless-shell",), ("chromium-headless-shell",)),
    "alertmanager": Part(("prometheus-alertmanager",), ("prometheus-alertmanager",)),
    "prometheus": Part(
        ("prometheus", "prometheus-alertmanager"), ("prometheus", "prometheus-alertmanager")
    ),
    "icinga2": Part(("icinga2", "curl"), ("icinga2-bin", "curl")),
    "nagios": Part(("nagios4", "curl"), ("nagios4-core", "curl")),
    "zabbix": Part(
        ("zabbix_server", "php"),
        ("zabbix-server-pgsql", "zabbix-frontend-php", "php-cli", "php-pgsql"),
    ),
    "nginx": Part(("nginx",), ("nginx",)),
    "haproxy": Part(("haproxy",), ("haproxy",)),
    "redis": Part(("redis-server",), ("redis-server",)),
    "pgbackrest": Part(("pgbackrest",), ("pgbackrest",)),
    "elasticsearch": JAVA,
    "kafka": JAVA,
    "s3": JAVA,
}


def reason_missing(mark: str) -> str | None:
    """Return why the tests with this mark cannot run here; None if they can."""
    part = PARTS[mark]
    missing = part.missing()
    return (
        f"{', '.join(missing)} not found: apt-get install {' '.join(part.packages)}"
        if missing
        else None
    )


def install(say: Callable[[str], None], *marks: str) -> None:
    """Install what is missing for these marks, or for all.

    If that is not possible, print why and continue.
    """
    missing = {mark: PARTS[mark] for mark in marks or PARTS if PARTS[mark].missing()}
    packages: list[str] = []
    for part in missing.values():
        packages += [name for name in part.packages if name not in packages]
    if not packages:
        return
    has_apt = shutil.which("apt-get") is not None
    if os.geteuid() != 0 or not has_apt:
        lacking = "root" if has_apt else "apt-get"
        say(f"not installed, for want of {lacking}: {' '.join(packages)}")
        return
    say(f"installing for the tests: {' '.join(packages)}")
    with _no_daemons():
        _apt("update")
        for mark, part in missing.items():
            if part.missing() and (
                error := _apt("install", "-y", "--no-install-recommends", *part.packages)
            ):
                say(f"{mark}: {error}")


@contextmanager
def _no_daemons() -> Iterator[None]:
    """Prevent packages from starting their daemons,
    without changing an existing policy of the machine.
    """
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _apt(*arguments: str) -> str:
    """Run apt-get; return the last line of its error output, or an empty text."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", *arguments]
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return (done.stderr.strip() or "apt-get failed").splitlines()[-1] if done.returncode else ""
