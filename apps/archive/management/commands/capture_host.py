"""`manage.py capture_host`: let a host send captured jobs to this portal, give it a token,
list the hosts.
"""

import os
import re
import socket
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.archive.domain.capture_hosts import (
    add_host_token,
    add_token_beside_portal,
    create_capture_host,
    revoke_host_tokens,
)
from apps.archive.models import CaptureHost


class Command(BaseCommand):
    help = (
        "Let a host send captured jobs and print its token, once; give it a new token; list the "
        "hosts."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        add = verbs.add_parser("add", help="add a host and print its token")
        add.add_argument("name")
        add.add_argument(
            "--cluster",
            action="append",
            required=True,
            help="cluster whose jobs the host may send; repeatable",
        )
        token = verbs.add_parser("token", help="create a token for a host and print it")
        token.add_argument("name")
        token.add_argument("--revoke-others", action="store_true")
        revoke = verbs.add_parser("revoke", help="revoke all tokens of a host")
        revoke.add_argument("name")
        here = verbs.add_parser(
            "here",
            help="add this machine, which has the portal's database; write its token to a file",
        )
        here.add_argument("--cluster", required=True, help="cluster that is captured here")
        here.add_argument("--token-file", type=Path, required=True, metavar="FILE")
        verbs.add_parser("list", help="list the hosts")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        try:
            getattr(self, f"_{verb}")(options)
        except ValidationError as error:
            raise CommandError("\n".join(error.messages)) from error

    def _add(self, options: dict[str, Any]) -> None:
        host, token = create_capture_host(
            name=options["name"], clusters=options["cluster"], by="capture_host", at=timezone.now()
        )
        self._tell(host, token)

    def _token(self, options: dict[str, Any]) -> None:
        host = _host(options["name"])
        at, revoke = timezone.now(), options["revoke_others"]
        self._tell(host, add_host_token(host=host, by="capture_host", at=at, revoke_others=revoke))

    def _revoke(self, options: dict[str, Any]) -> None:
        revoke_host_tokens(host=_host(options["name"]), by="capture_host", at=timezone.now())

    def _here(self, options: dict[str, Any]) -> None:
        name = socket.gethostname().partition(".")[0]
        token = add_token_beside_portal(
            name=re.sub(r"[^A-Za-z0-9_-]", "-", name)[:64] or "localhost",
            cluster=options["cluster"],
            by="capture_host",
            at=timezone.now(),
        )
        _write_secret(options["token_file"], token)

    def _tell(self, host: CaptureHost, token: str) -> None:
        address = f"{settings.PORTAL_URL}/"
        self.stderr.write(
            f"{host} hands over to CAPTURE_PORTAL={address} with this ARCHIVE_PORTAL_TOKEN, "
            "shown once:"
        )
        self.stdout.write(token)

    def _list(self, options: dict[str, Any]) -> None:
        for host in CaptureHost.objects.all():
            heard = f"{host.heard_at:%Y-%m-%d %H:%M:%SZ}" if host.heard_at else "never"
            self.stdout.write(
                f"{host.name}\t{', '.join(host.clusters)}\theard "
                f"{heard}\t{len(host.token_hashes)} tokens"
            )


def _write_secret(path: Path, secret: str) -> None:
    """Write a file that only this user can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = path.with_suffix(".new")
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secret)
    written.replace(path)


def _host(name: str) -> CaptureHost:
    host = CaptureHost.objects.filter(name=name).first()
    if host is None:
        raise CommandError(f"Capture host “{name}” not found.")
    return host
