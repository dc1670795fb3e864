from django.apps import AppConfig
from django.core import checks


class PortalConfig(AppConfig):
    name = "apps.portal"

    def ready(self) -> None:
        from apps.portal.pages.health import check_plugins, check_proxy

        checks.register(check_plugins)
        checks.register(check_proxy, checks.Tags.security, deploy=True)
