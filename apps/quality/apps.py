from django.apps import AppConfig


class QualityConfig(AppConfig):
    name = "apps.quality"

    def ready(self) -> None:
        from apps.production.domain.lifecycle import guards
        from apps.quality.domain.closure import refusal_to_close

        guards.CLOSING["quality"] = refusal_to_close
