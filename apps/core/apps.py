from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class CoreConfig(AppConfig):
    name = "apps.core"

    def ready(self) -> None:
        # Each app's subscribers register themselves; services enqueue tasks by name, so these must be known too.
        autodiscover_modules("subscribers", "tasks")
