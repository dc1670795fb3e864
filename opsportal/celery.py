"""The Celery application; its settings are the `CELERY_*` names of `opsportal.settings`."""

import os

from celery import Celery

from opsportal import heartbeats  # noqa: F401 -- connects its signals

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")

app = Celery("opsportal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
