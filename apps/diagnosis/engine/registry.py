"""The log classifiers of this installation: the catalogue, and third parties' by entry point."""

import logging
from collections.abc import Callable, Mapping
from functools import cache

from apps.core.domain.plugins import Registry
from apps.diagnosis.engine.base import LogClassifier

log = logging.getLogger(__name__)

#: A plugin is called without arguments and returns a classifier; a class will do.
REGISTRY: Registry[Callable[[], LogClassifier]] = Registry(
    group="opsportal.log_classifiers",
    builtins={"catalogue": "apps.diagnosis.engine.catalogue:built_in"},
)


@cache
def classifiers() -> Mapping[str, LogClassifier]:
    """Return every classifier that works, made once in a process; a broken one is reported, never fatal."""
    made = {}
    for name, make in REGISTRY.working().items():
        try:
            made[name] = make()
        except Exception as error:  # a third party's code may raise anything
            REGISTRY.problems[name] = f"cannot be made: {type(error).__name__}: {error}"
            log.exception("log classifier %s cannot be made", name)
    return made
