"""The project: settings, Celery, root URLs. What the portal does lives in `apps`."""

from opsportal.celery import app as celery_app

__all__ = ["celery_app"]
