"""`manage.py monitoring_source`: add and list monitoring sources, and manage their tokens."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.core.errors import DomainError
from apps.statusboard.domain.monitoring.sources import add_token, create_source
from apps.statusboard.models import MonitoringSource


class Command(BaseCommand):
    help = "Add a monitoring source, create tokens, or list sources."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        add = verbs.add_parser("add", help="add a source and print its token")
        add.add_argument("--slug", required=True)
        add.add_argument("--name", default="")
        add.add_argument("--feed", default="alertmanager")
        add.add_argument(
            "--heartbeat-timeout-seconds",
            type=int,
            default=900,
            help="seconds without a heartbeat after which its services become unknown",
        )
        add.add_argument(
            "--lease-seconds",
            type=int,
            default=3600,
            help="seconds after which an open alert becomes stale unless repeated",
        )
        add.add_argument(
            "--pull-url",
            default="",
            help="address that its current state is fetched from every minute",
        )
        token = verbs.add_parser("token", help="create a token for a source and print it")
        token.add_argument("--slug", required=True)
        token.add_argument("--revoke-others", action="store_true")
        verbs.add_parser("list", help="list the sources")

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        try:
            getattr(self, f"_{verb}")(options)
        except DomainError as error:
            raise CommandError(str(error)) from error

    def _add(self, options: dict[str, Any]) -> None:
        names = ("slug", "name", "feed", "heartbeat_timeout_seconds", "lease_seconds", "pull_url")
        fields = {name: options[name] for name in names}
        source, token = create_source(by="monitoring_source", at=timezone.now(), **fields)
        self._print_token(source, token)

    def _token(self, options: dict[str, Any]) -> None:
        source = MonitoringSource.objects.filter(slug=options["slug"]).first()
        if source is None:
            raise CommandError(f"Source “{options['slug']}” not found.")
        at = timezone.now()
        self._print_token(
            source,
            add_token(
                source=source, by="monitoring_source", at=at, revoke_others=options["revoke_others"]
            ),
        )

    def _print_token(self, source: MonitoringSource, token: str) -> None:
        self.stderr.write(
            f"URL for {source}: {settings.PORTAL_URL}/api/v1/feeds/{source.slug}/. Its token, "
            "shown only once:"
        )
        self.stdout.write(token)

    def _list(self, options: dict[str, Any]) -> None:
        for source in MonitoringSource.objects.all():
            if source.last_seen_at:
                last_seen = f"{source.last_seen_at:%Y-%m-%d %H:%M:%SZ}"
            else:
                last_seen = "never"
            self.stdout.write(
                f"{source.slug}\t{source.feed}\tlast seen "
                f"{last_seen}\t{source.services.count()} services"
            )
