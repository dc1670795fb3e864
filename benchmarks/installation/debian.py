"""A bare Debian 12 with systemd, booted in a container of this host.

It needs root, mmdebstrap and systemd-nspawn. It shares the network of the host, so the ports of
its servers must be free there, and reaches packages as the host does.
"""

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

TOOLS = ("mmdebstrap", "systemd-nspawn", "nsenter")
PACKAGES = "systemd,systemd-sysv,dbus,ca-certificates,apt,procps,iproute2"
#: How the host reaches packages, where it has its own way to them.
_SETTINGS_OF_PACKAGES = re.compile(r"(PIP|UV)_|(https?|no)_proxy$|SSL_CERT_FILE$", re.IGNORECASE)
_FILES_OF_PACKAGES = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
BOOT_SECONDS = 120


class CommandFailed(Exception):
    """A command in the container failed; the text is what it printed."""


def missing_tools() -> list[str]:
    return [tool for tool in TOOLS if shutil.which(tool) is None]


class Debian:
    """A container whose changes are gone when it ends.

    `directory` keeps its packages for the next one: making them takes about a minute.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.root = directory / "root"
        self.process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Make the file system of a bare Debian, unless it is there."""
        if (self.directory / "complete").exists():
            return
        shutil.rmtree(self.root, ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        options = []
        for path in Path("/etc/apt/apt.conf.d").iterdir():
            # The host's way to packages, but none of its other habits.
            if re.search(r"Acquire::", path.read_text()):
                options.append(f"--aptopt={path}")
        sources = ""
        for path in sorted(Path("/etc/apt").glob("sources.list*/*.sources")):
            sources += path.read_text() + "\n"
        subprocess.run(
            [
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={PACKAGES}",
                *options,
                "bookworm",
                str(self.root),
                *(["-"] if sources else []),
            ],
            input=sources,
            text=True,
            check=True,
        )
        self._let_it_reach_packages()
        (self.directory / "complete").touch()

    def _let_it_reach_packages(self) -> None:
        shutil.copytree("/etc/apt/apt.conf.d", self.root / "etc/apt/apt.conf.d", dirs_exist_ok=True)
        authorities = "usr/local/share/ca-certificates"
        shutil.copytree(f"/{authorities}", self.root / authorities, dirs_exist_ok=True)
        for name in _FILES_OF_PACKAGES:
            if Path(name).exists():
                shutil.copy(name, self.root / name[1:])
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        settings = []
        for name, value in os.environ.items():
            if _SETTINGS_OF_PACKAGES.match(name):
                settings.append(f"export {name}='{value}'\n")
        (self.root / "etc/profile.d/packages.sh").write_text("".join(settings))

    def boot(self, *binds: str) -> None:
        """Start it, with these directories of the host, and wait until systemd has started all."""
        command = ["systemd-nspawn", "--quiet", f"--directory={self.root}", "--volatile=overlay"]
        command += ["--register=no", "--keep-unit", "--resolv-conf=off", "--timezone=off"]
        command += ["--link-journal=no", "--console=pipe", "--machine=opsportal-guide"]
        command += [f"--bind-ro={bind}" for bind in binds]
        console = (self.directory / "console.log").open("wb")
        self.process = subprocess.Popen(
            [*command, "--boot"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
        until = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < until:
            try:
                state = self.run("systemctl is-system-running || true").strip()
                if state in {"running", "degraded"}:
                    # Debian's installer writes this file, mmdebstrap does not.
                    names = "127.0.0.1 localhost\n127.0.1.1 $(hostname)\n::1 localhost\n"
                    self.run(f'printf "{names}" > /etc/hosts')
                    return
            except (CommandFailed, LookupError):
                pass
            time.sleep(0.5)
        raise CommandFailed((self.directory / "console.log").read_text(errors="replace"))

    def _enter(self) -> list[str]:
        assert self.process
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        if not children:
            raise LookupError("systemd is not started yet")
        leader = children.split()[0]
        return ["nsenter", "-t", leader, "-m", "-u", "-i", "-p", "--", "/bin/bash", "-lc"]

    def run(self, script: str, *, text: str = "") -> str:
        """Run commands as root, with this text as input, and return what they print.

        Raises `CommandFailed` if one fails.
        """
        done = subprocess.run(
            [*self._enter(), f"set -e; cd /root\n{script}"],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CommandFailed(f"{script}\nexit status {done.returncode}\n{done.stdout}")
        return done.stdout

    def answer(
        self, script: str, answers: Iterable[tuple[str, str]], *, seconds: float = 60
    ) -> str:
        """Run commands in a terminal, and type an answer after each of these prompts.

        Raises `CommandFailed` if one fails, or prints nothing for `seconds`.
        """
        pid, terminal = pty.fork()
        if not pid:
            command = [*self._enter(), f"set -e; cd /root\n{script}"]
            os.execvp(command[0], command)
        printed = ""
        for prompt, typed in answers:
            place = len(printed)
            while prompt not in printed[place:]:
                more = _read(terminal, seconds)
                if not more:
                    raise CommandFailed(f"{script}\ndid not ask for {prompt!r}:\n{printed}")
                printed += more
            time.sleep(0.3)  # what hides a password drops what was typed before
            os.write(terminal, f"{typed}\n".encode())
        while more := _read(terminal, seconds):
            printed += more
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        if status:
            raise CommandFailed(f"{script}\nexit status {status >> 8}\n{printed}")
        return printed

    def write(self, path: str, content: str, *, append: bool = False) -> None:
        self.run(f"cat {'>>' if append else '>'} {path}", text=content)

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()


def _read(terminal: int, seconds: float) -> str:
    """Return what comes next; empty at the end, or after these seconds of silence."""
    ready, _, _ = select.select([terminal], [], [], seconds)
    if not ready:
        return ""
    try:
        return os.read(terminal, 65_536).decode(errors="replace")
    except OSError:  # the other side has closed it
        return ""
