from typing import Any

from django.core.management.base import CommandError
from django.core.management.commands import migrate

from apps.core.domain.schema import find_faults, find_refusal, summarise


class Command(migrate.Command):
    """Django's `migrate`, which rejects the database of another version.

    With `--check`, it also compares the schema with the models.
    """

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        """Skip the checks of the database: they would report what is about to be migrated."""
        return super().get_check_kwargs(options) | {"databases": None}

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate. Raises `CommandError` for a database that this version cannot migrate."""
        if refusal := find_refusal(database=options["database"], prune=options["prune"]):
            raise CommandError(refusal)
        if options["check_unapplied"] and not (options["app_label"] or options["plan"]):
            faults = find_faults(database=options["database"])
            if faults:
                raise CommandError(summarise(faults))
        super().handle(*args, **options)
