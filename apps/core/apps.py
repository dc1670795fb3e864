from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class CoreConfig(AppConfig):
    name = "apps.core"

    def ready(self) -> None:
        autodiscover_modules("events")
        # Subscribers register themselves; tasks are enqueued by name, so they must be imported too.
        autodiscover_modules("subscribers", "tasks")
