"""The WSGI application that the web server loads."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")

application = get_wsgi_application()
