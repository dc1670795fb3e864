"""Registry of log classifiers: the built-in catalogue and third-party plugins."""

import logging
from collections.abc import Callable, Mapping
from functools import cache

from apps.core.domain.plugins import Registry
from apps.diagnosis.engine.base import LogClassifier

log = logging.getLogger(__name__)

#: A plugin is a callable without arguments that returns a classifier, for example a class.
REGISTRY: Registry[Callable[[], LogClassifier]] = Registry(
    group="opsportal.log_classifiers",
    builtins={
        "catalogue": "apps.diagnosis.engine.catalogue:built_in",
        "grammar": "apps.diagnosis.engine.grammar:built_in",
    },
)


@cache
def classifiers() -> Mapping[str, LogClassifier]:
    """Return all working classifiers, created once per process; a broken one is reported, never fatal."""
    made = {}
    for name, make in REGISTRY.working().items():
        try:
            made[name] = make()
        except Exception as error:  # a third party's code may raise anything
            REGISTRY.problems[name] = f"cannot be created: {type(error).__name__}: {error}"
            log.exception("log classifier %s cannot be created", name)
    return made
