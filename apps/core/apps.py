from django.apps import AppConfig
from django.core import checks
from django.utils.module_loading import autodiscover_modules


class CoreConfig(AppConfig):
    name = "apps.core"

    def ready(self) -> None:
        from apps.core.domain.schema import check_schema

        checks.register(check_schema, checks.Tags.database)
        # Subscribers and tasks import the whole domain, so they are loaded only by processes that
        # publish events or enqueue tasks.
        autodiscover_modules("events")
