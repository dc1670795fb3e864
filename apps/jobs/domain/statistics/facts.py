"""Dimensions of the statistics that other apps know, such as verdict and cause."""

from collections.abc import Collection, Mapping
from typing import Protocol

from django.conf import settings

from apps.core.domain.plugins import Registry


class JobFacts(Protocol):
    """A plugin that knows dimensions of jobs which are not of this app: texts by dimension,
    by ID of the job.
    """

    def __call__(self, jobs: Collection[int]) -> Mapping[int, Mapping[str, str]]: ...


#: Dimensions that other apps know, such as verdict and cause; asked for jobs that did not complete.
FACTS: Registry[JobFacts] = Registry("opsportal.job_facts", settings.JOB_FACTS)
