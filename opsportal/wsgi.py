"""The WSGI application that the web server loads."""

import os
from importlib import import_module

import django
from django.core.wsgi import get_wsgi_application

from opsportal import finish_start, tracing
from opsportal.celery import app as celery_app
from opsportal.statements import limit_statements

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")

limit_statements()
django.setup(set_prefix=False)
# Before the application reads which middleware there is.
tracing.instrument(celery_app)
application = get_wsgi_application()

import_module("apps.portal.web.warm_up").load_ahead()
import_module("apps.api.views").write_ahead()

# Otherwise repeated garbage collections would delay some pages by a tenth of a second.
finish_start()
