"""The WSGI application that the web server loads."""

import gc
import os
from importlib import import_module

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")

application = get_wsgi_application()

import_module("apps.portal.web.warm_up").load_ahead()
import_module("apps.api.views").write_ahead()

# What is loaded stays: going through it again and again would stop some pages for a tenth of a second.
gc.collect()
gc.freeze()
