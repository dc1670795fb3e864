"""The portal's settings for web processes of tests, whose static files are not collected."""

from opsportal import settings  # noqa: TID251
from opsportal.settings import *  # noqa: F403, TID251

STORAGES = settings.STORAGES | {
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
}
