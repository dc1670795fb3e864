"""What the API takes as JSON: nothing that is too large, too deep,
or that the database cannot store.
"""

import json
import time

import pytest

from apps.core.api.input import _path_of_bad_text

URL = "/api/v1/requests/"


def answer(client, person, body, path=URL):
    client.force_login(person)
    return client.post(path, body, content_type="application/json")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ('{"experiment": "\\u0000"}', "experiment"),
        ('{"requested_priority": "\\ud800"}', "requested_priority"),
        ('{"stages": [{}, {"services": ["\\udfff"]}]}', "stages.1.services.0"),
        ('{"stages": [{"\\ud800": "x\\ud800"}]}', "stages.0"),
        ('"\\u0000"', "non_field_errors"),
    ],
)
def test_text_that_cannot_be_stored_is_refused_by_its_path(client, liaison, body, path):
    response = answer(client, liaison, body)
    assert (response.status_code, list(response.json())) == (400, [path])


@pytest.mark.parametrize("body", ["[" * 200_000, '{"a":' * 200_000, "1" * 6000, "NaN", "", "\xff"])
def test_what_is_no_json_is_refused(client, liaison, body):
    assert answer(client, liaison, body).status_code == 400


def test_too_much_json_is_refused_unread(client, liaison, settings):
    body = json.dumps({"title": "x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE})
    assert answer(client, liaison, body).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        "[" + "1," * 1_250_000 + "1]",
        "[" + "[]," * 800_000 + "1]",
        '["\\\\u0000"' + ',""' * 800_000 + "]",
    ],
    ids=["numbers", "lists", "texts"],
)
def test_text_is_checked_in_linear_time(body):
    """2.5 MB took 6 s. Beside other work 0.5 s of CPU time were measured."""
    data = json.loads(body)
    began = time.process_time()
    assert _path_of_bad_text(data) is None
    assert time.process_time() - began < 2


def test_whole_pairs_are_text(client, liaison):
    body = json.dumps({"experiment": "NOVA", "title": "\N{GRINNING FACE}"})
    assert answer(client, liaison, body).json()["title"] == "\N{GRINNING FACE}"
