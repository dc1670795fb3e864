"""What tests read on pages, however their templates are broken into lines."""

import re

from django.http import HttpResponse


def text_of(response: HttpResponse) -> str:
    """Return the HTML with every run of white space as one blank, as a browser shows it."""
    return re.sub(r"\s+", " ", response.content.decode())
