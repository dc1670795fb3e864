"""nginx in front of several web servers, as docs/scale-out.md has it."""

import subprocess
from pathlib import Path

from dev.processes import ROOT, spawn

SERVER = "    server {address} max_fails=1 fail_timeout=5s;"


def start_proxy(nginx: str, directory: Path, run: Path, listen: list[str], servers: list[str]):
    """Start nginx with `deploy/nginx.conf` but for TLS.

    `listen` and `servers` are addresses with ports; `run` is for its pid file.
    """
    directory.mkdir()
    file = directory / "nginx.conf"
    file.write_text(_configuration(directory, listen, servers))
    command = [nginx, "-e", str(directory / "errors.log"), "-g", "daemon off;"]
    return spawn(
        "nginx",
        [*command, "-p", str(directory), "-c", str(file)],
        run,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )


def _configuration(directory: Path, listen: list[str], servers: list[str]) -> str:
    site = (ROOT / "deploy/nginx.conf").read_text()
    socket = "    server unix:/run/opsportal/web.sock fail_timeout=0;"
    assert socket in site
    site = site.replace(socket, "\n".join(SERVER.format(address=address) for address in servers))
    upstream, _redirect, server = site.split("\nserver {")
    lines = [
        f"pid {directory}/pid;",
        "events {}",
        "http {",
        "access_log off;",
        f"client_body_temp_path {directory}/body;",
        f"proxy_temp_path {directory}/proxy;",
        upstream,
        "server {",
        *(f"    listen {address};" for address in listen),
    ]
    lines += [line for line in server.splitlines() if " ssl" not in line]
    return "\n".join([*lines, "}"])
