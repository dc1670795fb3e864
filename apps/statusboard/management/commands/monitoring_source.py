"""`manage.py monitoring_source`: make a monitoring source, give it a token, list what there is."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.core.errors import DomainError
from apps.statusboard.domain.sources import add_token, create_source
from apps.statusboard.models import MonitoringSource


class Command(BaseCommand):
    help = "Make a monitoring source and print its token, once; give it a new token; list the sources."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        add = verbs.add_parser("add", help="make a source and print its token")
        add.add_argument("--slug", required=True)
        add.add_argument("--name", default="")
        add.add_argument("--feed", default="alertmanager")
        add.add_argument("--heartbeat-timeout-seconds", type=int, default=900, help="how long a sign of life holds")
        add.add_argument("--lease-seconds", type=int, default=3600, help="how long an open alert holds unless repeated")
        token = verbs.add_parser("token", help="print a new token of a source")
        token.add_argument("--slug", required=True)
        token.add_argument("--revoke-others", action="store_true")
        verbs.add_parser("list", help="list the sources")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        try:
            getattr(self, f"_{verb}")(options)
        except DomainError as error:
            raise CommandError(str(error)) from error

    def _add(self, options: dict[str, Any]) -> None:
        names = ("slug", "name", "feed", "heartbeat_timeout_seconds", "lease_seconds")
        given = {name: options[name] for name in names}
        source, token = create_source(by="monitoring_source", at=timezone.now(), **given)
        self._tell(source, token)

    def _token(self, options: dict[str, Any]) -> None:
        source = MonitoringSource.objects.filter(slug=options["slug"]).first()
        if source is None:
            raise CommandError(f"There is no source “{options['slug']}”.")
        at = timezone.now()
        self._tell(
            source, add_token(source=source, by="monitoring_source", at=at, revoke_others=options["revoke_others"])
        )

    def _tell(self, source: MonitoringSource, token: str) -> None:
        self.stderr.write(
            f"{source} posts to {settings.PORTAL_URL}/api/v1/feeds/{source.slug}/ with this token, shown once:"
        )
        self.stdout.write(token)

    def _list(self, options: dict[str, Any]) -> None:
        for source in MonitoringSource.objects.all():
            heard = f"{source.last_seen_at:%Y-%m-%d %H:%M:%SZ}" if source.last_seen_at else "never"
            self.stdout.write(f"{source.slug}\t{source.feed}\theard {heard}\t{source.services.count()} services")
