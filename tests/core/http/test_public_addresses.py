"""Special-purpose addresses of the IANA registries are never public, under any Python."""

import ast
import json
import os
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from shutil import which

import pytest

from apps.core.http import public_addresses
from apps.core.http.public_addresses import is_public

PUBLIC = [
    "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.1", "192.1.0.0",
    "198.17.255.255", "198.20.0.0", "223.255.255.255", "2001:200::1", "2600::1", "2606:4700::1111", "3ffe:ffff::1",
    "3fff:1000::1", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2002:808:808::1",
]  # fmt: skip
SPECIAL = [
    "0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255", "168.63.129.16",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.0.9", "192.0.0.10", "192.0.0.170",
    "192.0.0.192", "192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.168.1.1", "192.175.48.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
    "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::8.8.8.8", "100::1", "100:0:0:1::1", "2001::1", "2001:0:808:808::", "2001:1::1",
    "2001:1::3", "2001:2::1", "2001:3::1", "2001:4:112::1", "2001:10::1", "2001:20::1", "2001:30::1", "2001:1ff::1",
    "2001:db8::1", "2620:4f:8000::1", "3fff::1", "3fff:fff::1", "4000::1", "5f00::1", "fc00::1", "fd12::1", "fe80::1",
    "fec0::1", "feff::1", "ff02::1",
    # IPv6 that leads to special IPv4: mapped, translated and tunnelled.
    "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:192.0.0.192", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1", "64:ff9b:1::8.8.8.8", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:c000:c0::1",
]  # fmt: skip
#: Prints a JSON list of whether the addresses, given as JSON, are public. Runs under other Pythons,
#: without packages.
PROGRAM = "import json, sys; from public_addresses import *; from ipaddress import ip_address;\
 print(json.dumps([is_public(ip_address(a)) for a in json.load(sys.stdin)]))"
#: Modules that open connections, and whose the address is: only a webhook's is a user's, and it is
#: checked.
CONNECT = {
    "accounts/web/openid": "the operator's provider",
    "archive/management/commands/capture_host": "the name of the host only",
    "archive/sinks/elasticsearch/connection": "the operator's cluster",
    "archive/sinks/kafka/connection": "the operator's brokers",
    "archive/sinks/kafka/sink": "the operator's brokers",
    "capture/portal": "the operator's portal",
    "core/bounded_pool": "a pair of sockets of its own",
    "portal/pages/doctor/site": "the portal's own address, and its mail server",
    "diagnosis/engine/logs/remote": "servers listed by the operator",
    "accounts/web/provider": "the operator's provider of single sign-on",
    "core/http/addresses": "resolves names, to check their addresses",
    "core/http/client": "where its caller's rule leads",
    "core/http/deadline": "cuts what others have opened",
    "core/http/errors": "errors of the client",
    "datasets/catalogues/connection": "the operator's catalogue",
    "demo/simulation/alerts": "the demo's own portal",
    "demo/simulation/probes": "the demo's own portal",
    "jobs/domain/months/stores/bucket": "the operator's object store",
    "portal/pages/doctor/job_archive": "the name of the host only",
    "notifications/domain/mail": "the operator's mail server",
    "notifications/domain/webhook_posts": "a user's, on the public internet only",
    "statusboard/domain/monitoring/source_fetch": "hosts listed by the operator",
}
NETWORK = {
    "aiohttp", "apps.core.http.client", "confluent_kafka", "elasticsearch", "ftplib", "http.client", "httpx", "imaplib",
    "paramiko", "poplib", "pyarrow.fs",
    "requests", "smtplib", "socket", "ssl", "telnetlib", "urllib.request", "urllib3",
    "websockets", "xmlrpc.client",
}  # fmt: skip


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return names


def test_only_known_modules_open_connections():
    root = Path(public_addresses.__file__).parents[3]
    modules = {
        path.relative_to(root).with_suffix("").as_posix().removeprefix("apps/")
        for folder in ("apps", "capture")
        for path in (root / folder).rglob("*.py")
        if imported(path) & NETWORK
    }
    assert modules <= set(CONNECT), (
        "say whose the address is; one that a user gives goes through the rule PublicHosts"
    )
    assert "notifications/domain/webhook_posts" in modules


@pytest.mark.parametrize("address", PUBLIC)
def test_ordinary_addresses_are_public(address):
    assert is_public(ip_address(address))


@pytest.mark.parametrize("address", SPECIAL)
def test_special_addresses_are_not_public(address):
    assert not is_public(ip_address(address))


def pythons() -> dict[str, str]:
    """Return the interpreters of this machine that the portal may run on, by version:
    at least this one.
    """
    this = f"3.{sys.version_info.minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    beside = sorted((pyenv / "versions").glob("3.*.*/bin/python3"))
    interpreters = {".".join(path.parts[-3].split(".")[:2]): str(path) for path in beside}
    for minor in range(11, 20):
        path = which(f"python3.{minor}")
        if path and not path.startswith(f"{pyenv}/"):  # its shims run only what is selected
            interpreters.setdefault(f"3.{minor}", path)
    supported = {
        version: path
        for version, path in interpreters.items()
        if int(version.partition(".")[2]) >= 11
    }
    return supported | {this: sys.executable}


@pytest.mark.parametrize("python", pythons().values(), ids=pythons().keys())
def test_every_python_agrees(python):
    """Their `ipaddress` modules differ: 3.11 calls 192.0.0.192 and fec0::
    special or not by its patch release.
    """
    path = Path(public_addresses.__file__).parent
    process = subprocess.run(
        [python, "-c", PROGRAM],
        check=False,
        cwd=path,
        input=json.dumps(PUBLIC + SPECIAL),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == [True] * len(PUBLIC) + [False] * len(SPECIAL)
