"""HAProxy before web servers, and before servers of PostgreSQL, as docs/scale-out.md has it."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from dev.processes import ROOT, spawn

#: Lines that need TLS, another user, or a system log.
_LEFT_OUT = ("bind :443 ", "http-request redirect scheme", "user ", "group ", "log /dev/log")


def start_haproxy(
    haproxy: str,
    directory: Path,
    run: Path,
    *,
    listen: list[str],
    web_servers: list[str],
    database: str,
    databases: list[str],
):
    """Start HAProxy with `deploy/haproxy.cfg` but for TLS, and return its process.

    All are addresses with ports: `listen` and `database` those of HAProxy, `web_servers` the two
    behind it, and `databases` the hosts of PostgreSQL, on 5432 with Patroni on 8008, without ports.
    `run` is for its pid file.
    """
    binds = [f"bind {address}" for address in listen]
    addresses = {
        "bind :80": "\n    ".join(binds),
        "bind 127.0.0.1:5432": f"bind {database}",
        "10.1.0.21:": f"{databases[0]}:",
        "10.1.0.22:": f"{databases[1]}:",
        "10.1.0.1:8000": web_servers[0],
        "10.1.0.2:8000": web_servers[1],
        "hdr Host opsportal.example.org": f"hdr Host {listen[0].partition(':')[0]}",
    }
    directory.mkdir()
    file = directory / "haproxy.cfg"
    file.write_text(_configuration(addresses))
    with (directory / "log").open("ab") as log:
        command = [haproxy, "-db", "-f", str(file)]
        return spawn("haproxy", command, run, stdout=log, stderr=subprocess.STDOUT)


def _configuration(addresses: Mapping[str, str]) -> str:
    text = (ROOT / "deploy/haproxy.cfg").read_text()
    for documented, ours in addresses.items():
        assert documented in text
        text = text.replace(documented, ours)
    lines = [line for line in text.splitlines() if not line.strip().startswith(_LEFT_OUT)]
    return "".join(f"{line}\n" for line in lines)
