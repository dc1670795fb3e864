"""Dimensions of the statistics that other apps provide, such as verdict and cause."""

from collections.abc import Collection, Mapping
from typing import Protocol

from django.conf import settings

from apps.core.domain.plugins import Registry


class JobFacts(Protocol):
    """A plugin that provides dimensions of jobs: texts by dimension, by primary key of the job."""

    def __call__(self, job_pks: Collection[int]) -> Mapping[int, Mapping[str, str]]: ...


#: Plugins for dimensions such as verdict and cause, called with the jobs that did not complete.
FACTS: Registry[JobFacts] = Registry("opsportal.job_facts", settings.JOB_FACTS)
