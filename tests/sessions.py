"""Sessions for test clients, with a quarter of the queries of a login."""

from importlib import import_module

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.test import Client

from apps.accounts.models import User

_force_login = Client.force_login


def open_session(client: Client, user: User, backend: str | None = None) -> None:
    """Log the user in, as `Client.force_login` does, for which it stands in all tests.

    A new client gets the row that a login leaves in the table of sessions, and nothing else:
    no `user_logged_in` is sent, so neither `last_login` nor the access log changes. Tests of these
    log in by the form. A client that has a session logs in as Django does it, which may end the
    session.
    """
    if settings.SESSION_COOKIE_NAME in client.cookies:
        _force_login(client, user, backend)
        return

    user.backend = backend or client._get_backend()
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = user._meta.pk.value_to_string(user)
    session[BACKEND_SESSION_KEY] = user.backend
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key
