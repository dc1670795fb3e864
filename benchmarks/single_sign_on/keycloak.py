"""A Keycloak on loopback with a database in a directory of its own, and its admin API."""

import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
import zipfile
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from dev.jars import cached_home, fetch_file, run_tool
from dev.messages import SetupError
from dev.processes import free_port, spawn
from tests.programs.certificates import self_signed

VERSION = "26.7.3"
REALM = "lab"
PASSWORD = "correct horse battery staple"
START_SECONDS = 120
_ADMIN = {"username": "root", "password": PASSWORD}
_PARTS = ("lib", "conf", "providers", "themes", "version.txt")
# The second compiler and the parallel collector cost more than they save in so short a life.
_JAVA = ("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_THREADS = "io.quarkus.bootstrap.forkjoin.QuarkusForkJoinWorkerThreadFactory"


class Keycloak:
    """A server with the realm `lab`, which can be killed and started again with its data."""

    def __init__(self, base: Path) -> None:
        self._run_dir = base / "run"
        self._home = base / "keycloak"
        self._log = base / "keycloak.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.certificate, self._key = self_signed(base, "DNS:localhost")
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(
                context=ssl.create_default_context(cafile=self.certificate)
            ),
            _Stay,
        )
        # For browsers another site than the portal's 127.0.0.1, which matters to cookies.
        self.address = f"https://localhost:{free_port()}"
        self.issuer = f"{self.address}/realms/{REALM}"
        installed = fetch()
        (self._home / "data/import").mkdir(parents=True)
        for name in _PARTS:
            (self._home / name).symlink_to(installed / name)

    def start(self, realm: dict[str, Any]) -> None:
        """Start it, import the realm if its database has none, and wait until it answers."""
        (self._home / f"data/import/{REALM}-realm.json").write_text(json.dumps(realm))
        with self._log.open("ab") as log:
            self._process = spawn(
                "keycloak", self._command(), self._run_dir, stdout=log, stderr=log
            )
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                lines = self._log.read_text().splitlines()
                raise SetupError(f"Keycloak did not start: {lines[-1] if lines else 'no output'}")
            time.sleep(0.2)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _command(self) -> list[str]:
        return [
            *_JAVA,
            f"-Dkc.home.dir={self._home}",
            "-Dkc.config.built=true",
            "-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
            f"-Djava.util.concurrent.ForkJoinPool.common.threadFactory={_THREADS}",
            *("-cp", str(self._home / "lib/quarkus-run.jar")),
            *("io.quarkus.bootstrap.runner.QuarkusEntryPoint", "start", "--optimized"),
            *("--http-host=127.0.0.1", f"--hostname={self.address}"),
            f"--https-port={self.address.rpartition(':')[2]}",
            f"--https-certificate-file={self.certificate}",
            f"--https-certificate-key-file={self._key}",
            f"--bootstrap-admin-username={_ADMIN['username']}",
            f"--bootstrap-admin-password={_ADMIN['password']}",
            "--import-realm",
        ]

    def _answers(self) -> bool:
        try:
            self.read(f"/realms/{REALM}/.well-known/openid-configuration")
        except (OSError, HTTPException):
            return False
        return True

    def read(self, path: str) -> Any:
        """Return the JSON at a path that takes no login."""
        with self._opener.open(self.address + path, timeout=30) as answer:
            return json.load(answer)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the admin API of the realm; return the JSON of its answer."""
        request = urllib.request.Request(
            f"{self.address}/admin/realms/{REALM}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"},
            method=method,
        )
        with self._opener.open(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def _token(self) -> str:
        form = {"grant_type": "password", "client_id": "admin-cli", **_ADMIN}
        address = f"{self.address}/realms/master/protocol/openid-connect/token"
        with self._opener.open(address, urlencode(form).encode(), timeout=30) as answer:
            return json.load(answer)["access_token"]

    def user(self, username: str) -> dict[str, Any]:
        [user] = self.call("GET", f"/users?{urlencode({'username': username, 'exact': 'true'})}")
        return user

    def change_user(self, old_username: str, **changes: Any) -> None:
        user = self.user(old_username)
        self.call("PUT", f"/users/{user['id']}", user | changes)

    def move_user(self, username: str, *, out_of: str = "", into: str = "") -> None:
        """Take a user out of a group and into another one, both by their paths."""
        user_path = f"/users/{self.user(username)['id']}/groups"
        for method, group_path in (("DELETE", out_of), ("PUT", into)):
            if group_path:
                group = self.call("GET", f"/group-by-path{group_path}")
                self.call(method, f"{user_path}/{group['id']}")

    def refusal(self, **question: str) -> str:
        """Return where the provider sends a browser that asks for a login like this."""
        query = urlencode({"client_id": "opsportal", "response_type": "code", **question})
        address = f"{self.issuer}/protocol/openid-connect/auth?{query}"
        try:
            self._opener.open(address, timeout=30).close()
        except urllib.error.HTTPError as answer:
            answer.close()
            return answer.headers.get("Location", "")
        return ""

    def create_client(self, client: dict[str, Any]) -> None:
        self.call("POST", "/clients", client)

    def client(self) -> dict[str, Any]:
        [client] = self.call("GET", "/clients?clientId=opsportal")
        return client

    def change_client(self, **attributes: str) -> None:
        client = self.client()
        client["attributes"] |= attributes
        self.call("PUT", f"/clients/{client['id']}", client)

    def client_secret(self) -> str:
        return self.call("GET", f"/clients/{self.client()['id']}/client-secret")["value"]

    def key_ids(self) -> set[str]:
        """Return the IDs of the keys that sign, as the realm publishes them."""
        keys = self.read(f"/realms/{REALM}/protocol/openid-connect/certs")["keys"]
        return {key["kid"] for key in keys if key["use"] == "sig"}

    def rotate_rsa_keys(self) -> None:
        """Sign with a new RSA key from now on, and publish the old one no longer."""
        query = urlencode({"type": "org.keycloak.keys.KeyProvider"})
        old = [
            provider
            for provider in self.call("GET", f"/components?{query}")
            if provider["providerId"] == "rsa-generated"
        ]
        new = {
            "name": f"rsa-{time.time_ns()}",
            "providerId": "rsa-generated",
            "providerType": "org.keycloak.keys.KeyProvider",
            "config": {"priority": ["200"], "keySize": ["2048"]},
        }
        self.call("POST", "/components", new)
        for provider in old:
            self.call("DELETE", f"/components/{provider['id']}")


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def fetch() -> Path:
    """Return the directory of the installed server, downloaded on first use.

    Raises `SetupError`.
    """
    return cached_home(f"keycloak-{VERSION}", _install) / f"keycloak-{VERSION}"


def _install(home: Path) -> None:
    archive = fetch_file(f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip", home)
    with zipfile.ZipFile(archive) as files:
        files.extractall(home)
    archive.unlink()
    script = home / f"keycloak-{VERSION}/bin/kc.sh"
    run_tool("sh", script, "build", "--db=dev-file", "--cache=local")
