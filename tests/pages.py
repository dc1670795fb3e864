"""What tests read on pages, however their templates are broken into lines."""

import re

from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User


def text_of(response: HttpResponse) -> str:
    """Return the HTML with every run of white space as one blank, as a browser shows it."""
    return re.sub(r"\s+", " ", response.content.decode())


def page_of(client: Client, user: User, path: str) -> str:
    """Return the HTML that the user gets, whose session the client keeps."""
    client.force_login(user)
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


def count_queries(client: Client, path: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(path).status_code == 200
    return len(queries)
