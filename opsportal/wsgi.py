"""The WSGI application that the web server loads."""

import gc
import os
from importlib import import_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")

application = get_wsgi_application()

# What is loaded stays: going through it again and again would stop some pages for a tenth of a second.
import_module(settings.ROOT_URLCONF)
gc.collect()
gc.freeze()
