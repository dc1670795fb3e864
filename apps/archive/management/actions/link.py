"""`archive link`: bring what accounting tells to every archived job of a cluster, such as those of an older version."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.archive.domain.links import link_all
from apps.clusters.models import Cluster

HELP = "tie every archived job to accounting anew"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--cluster", required=True)


def run(command: BaseCommand, *, cluster: str, **_: Any) -> None:
    known = Cluster.objects.filter(name=cluster).first()
    if known is None:
        raise CommandError(f"Cluster {cluster} not found.")
    command.stdout.write(f"changed {link_all(cluster=known)} archived jobs of {cluster}")
