from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import autodiscover_modules


class CoreConfig(AppConfig):
    name = "apps.core"

    def ready(self) -> None:
        autodiscover_modules("events")
        if getattr(settings, "SUBSCRIBERS_ELSEWHERE", False):
            from apps.core.domain import subscriptions

            subscriptions.defer_to_workers()
            return
        # Subscribers register themselves; tasks are enqueued by name, so they must be imported too.
        autodiscover_modules("subscribers", "tasks")
