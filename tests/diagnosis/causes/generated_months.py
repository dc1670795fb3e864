"""Generated months of jobs with planted causes of failure, as columns."""

import numpy as np

from apps.diagnosis.domain.causes.common.peeling import JobColumns


def month(seed, *, jobs=20_000, submissions=200, clumps=0.1, causes=()):
    """A generated month: submissions of some size with rates of their own,
    and planted causes on top.
    """
    random = np.random.default_rng(seed)
    submission = random.integers(0, submissions, jobs)
    of_submission = {
        "stage": random.integers(0, 5, submissions)[submission],
        "user": random.integers(0, 8, submissions)[submission],
        "release": random.integers(0, 6, submissions)[submission],
    }
    site = random.integers(0, 4, jobs)
    host = site * 50 + random.integers(0, 50, jobs)
    attributes = of_submission | {
        "site": site,
        "host": host,
        "CPU model": host % 7,
        "hour": random.integers(0, 24, jobs),
    }
    usual = np.where(random.random(submissions) < clumps, random.beta(1, 3, submissions), 0.02)
    rate = usual[submission]
    outage = random.random(jobs) < 0.01
    for name, value, more in causes:
        has = outage if name == "service samweb" else attributes[name] == value
        rate = np.where(has, np.maximum(rate, more), rate)
    return JobColumns(random.random(jobs) < rate, submission, attributes, {"samweb": outage})


PLANTED = (
    ("host", 17, 0.9),
    ("site", 3, 0.15),
    ("release", 4, 0.3),
    ("service samweb", 1, 0.6),
    ("CPU model", 2, 0.12),
)
