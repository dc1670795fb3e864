"""The blocks of commands and files in docs/production.md, and which of them are followed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dev.processes import ROOT

GUIDE = ROOT / "docs/production.md"

#: The blocks that are followed, by a name: their section, and how they start.
FOLLOWED = {
    "code": ("1. Packages, user, code", "apt-get install git"),
    "set up": ("Setup", ".venv/bin/python manage.py setup --answers"),
    "answers": ("Setup", 'PORTAL_URL = "https'),
    "database": ("2. PostgreSQL", "runuser -u postgres -- createuser"),
    "redis": ("3. Redis", "requirepass"),
    "secrets": ("4. Settings and secrets", "install -d -m 750"),
    "settings": ("4. Settings and secrets", "SECRET_KEY_FILE="),
    "first admin": ("5. Database, files, first admin", "install -d -o opsportal"),
    "services": ("6. Services", "cp /opt/opsportal/current/deploy/systemd/*"),
    "certificate": ("7. nginx", "openssl req"),
    "nginx": ("7. nginx", "cp /opt/opsportal/current/deploy/nginx.conf"),
    "capture's user": ("8. Capture, on the scheduler's host", "useradd --system"),
    "capture's token": ("8. Capture, on the scheduler's host", "opsportal-manage capture_host"),
    "capture's settings": ("8. Capture, on the scheduler's host", "CAPTURE_CLUSTER="),
    "capture": ("8. Capture, on the scheduler's host", "chown root:opsportal-capture"),
    "backup": ("Backup and restore", "(umask 077; runuser"),
    "restore": ("Backup and restore", "systemctl stop opsportal.target"),
    "pgbackrest": ("Point in time", "apt-get install pgbackrest"),
    "first full backup": ("Point in time", "systemctl daemon-reload"),
    "restore to a moment": ("Point in time", "systemctl stop opsportal.target"),
    "restore of secrets": ("Point in time", "openssl enc -d"),
    "upgrade": ("Upgrade", "git clone --branch"),
    "way back": ("Upgrade", "sh /opt/opsportal/current/deploy/upgrade.sh --back"),
    "answer of --check": ("Without downtime", "upgrade: rolling: yes"),
    "rolling upgrade": ("Without downtime", "sh ~/opsportal-VERSION/deploy/upgrade.sh --rolling"),
}
#: The other blocks of these sections, with the reason why they are not.
LEFT_OUT = {
    ("From a package", "sha256sum --check"): "the code is cloned; `make test` installs the wheel",
    ("Setup", "cd /opt/opsportal/current && "): "asks for what is in the file of answers",
    ("Change a unit", "systemctl edit"): "depends on the site",
    ("Restrictions", "[Service]\nNoNewPrivileges"): "only for retries as the owner",
    ("Unreadable logs", "[Service]\nAmbientCapabilities"): "only for logs below closed homes",
    ("Backup and restore", "opsportal-manage after_restore"): "only for snapshots of a server",
}


@dataclass(frozen=True)
class Block:
    """An indented or fenced block of the guide, in the section of this title."""

    section: str
    text: str


def blocks() -> list[Block]:
    """Return the blocks of the sections that are followed, in the order of the guide."""
    sections = {section for section, _ in [*FOLLOWED.values(), *LEFT_OUT]}
    return [block for block in read_blocks(GUIDE.read_text()) if block.section in sections]


def text_of(name: str) -> str:
    """Return the text of a block in `FOLLOWED`."""
    section, start = FOLLOWED[name]
    texts = []
    for block in blocks():
        if block.section == section and block.text.startswith(start):
            texts.append(block.text)
    [text] = texts
    return text


def read_blocks(text: str) -> Iterator[Block]:
    section = ""
    lines: list[str] = []
    is_fenced = False
    for line in [*text.split("\n"), "end"]:
        is_fence = line.startswith("```")
        if not is_fence and (is_fenced or line.startswith("    ")):
            lines.append(line if is_fenced else line[4:])
            continue
        if not is_fence and not line and lines:
            lines.append("")  # of the block, if it goes on
            continue
        if lines:
            yield Block(section, "\n".join(lines).strip("\n"))
            lines = []
        if is_fence:
            is_fenced = not is_fenced
        elif title := re.fullmatch(r"#+ (.*)", line):
            section = title[1]
