from django.apps import AppConfig
from django.core import checks
from django.utils.module_loading import autodiscover_modules


class CoreConfig(AppConfig):
    name = "apps.core"

    def ready(self) -> None:
        from apps.core.domain.schema import check_schema

        checks.register(check_schema, checks.Tags.database)
        autodiscover_modules("events")
        # Subscribers register themselves; tasks are enqueued by name, so they must be imported too.
        autodiscover_modules("subscribers", "tasks")
