from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks


class PortalConfig(AppConfig):
    name = "apps.portal"

    def ready(self) -> None:
        checks.register(_check_plugins)
        checks.register(_check_search)
        checks.register(_check_energy_model)
        checks.register(_check_proxy, checks.Tags.security, deploy=True)
        checks.register(_check_traces, "traces", deploy=True)


# The health page imports much of the portal. Processes that run no checks need not load it.
def _check_plugins(**_: Any) -> Sequence[checks.CheckMessage]:
    from apps.portal.pages.health.page import check_plugins

    return check_plugins()


def _check_search(**_: Any) -> Sequence[checks.CheckMessage]:
    from apps.portal.pages.health.page import check_search

    return check_search()


def _check_energy_model(**_: Any) -> Sequence[checks.CheckMessage]:
    from apps.portal.pages.health.page import check_energy_model

    return check_energy_model()


def _check_proxy(**_: Any) -> Sequence[checks.CheckMessage]:
    from apps.portal.pages.health.page import check_proxy

    return check_proxy()


def _check_traces(**_: Any) -> Sequence[checks.CheckMessage]:
    from opsportal.tracing import find_problem

    problem = find_problem()
    return [checks.Warning(problem, id="opsportal.W003")] if problem else []
