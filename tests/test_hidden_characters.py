"""Control, direction and invisible characters of a page are marked;
those of its form values and of data are not.

That no page shows one as it is: `tests/test_routes.py`.
"""

import pytest
from django.http import HttpResponse

from apps.core.web.middleware import HiddenCharactersMiddleware
from tests.factories.hidden_characters import CANARY


def test_values_of_forms_stay_as_they_are():
    page = (
        f'<p title="{CANARY}">{CANARY}</p><input value="{CANARY}"><textarea '
        f'name="x">{CANARY}</textarea>{CANARY}'
    )
    marked = HiddenCharactersMiddleware(lambda _: HttpResponse(page))(None).content.decode()
    assert marked.count(CANARY) == 2
    assert f'value="{CANARY}"' in marked
    assert f">{CANARY}</textarea>" in marked
    assert marked.count("⟨U+202E⟩") == 3


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/json", "application/octet-stream"]
)
def test_data_is_left_alone(content_type):
    response = HttpResponse(CANARY, content_type=content_type)
    assert HiddenCharactersMiddleware(lambda _: response)(None).content.decode() == CANARY
