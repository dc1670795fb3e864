"""What a former `SECRET_KEY` signed is valid as long as it is among the fallbacks."""

import secrets
from datetime import timedelta

import pytest
from django.urls import reverse
from pydantic import ValidationError

from apps.core.domain.secrets.signing_keys import find_key, key_id, signing_keys
from apps.jobs.domain.phases.tokens import new_phase_token, read_phase_token
from opsportal.env import Environment


@pytest.mark.parametrize("keep", [True, False])
def test_users_stay_logged_in(client, liaison, replace_key, keep):
    client.force_login(liaison)
    replace_key(keep=keep)
    for _ in range(2):
        # The first request renews the session with the new key.
        response = client.get(reverse("notifications:settings"))
        assert response.status_code == (200 if keep else 302)


@pytest.mark.parametrize("keep", [True, False])
def test_tokens_of_running_jobs_stay_valid(at, replace_key, keep):
    token = new_phase_token(cluster_id=1, experiment_id=2, at=at)
    replace_key(keep=keep)
    content = read_phase_token(token, at=at + timedelta(hours=1))
    assert (content is not None) == keep


def test_key_is_found_by_its_id(settings, replace_key):
    former = settings.SECRET_KEY
    replace_key(keep=True)
    present = settings.SECRET_KEY
    assert signing_keys() == [present, former]
    assert find_key(key_id(former)) == former
    assert find_key(key_id(present)) == present
    assert find_key("of a third key") == present
    assert former not in key_id(former)
    assert len(key_id(former)) == 16


def test_each_fallback_has_to_be_a_good_key():
    good, other = secrets.token_urlsafe(50), secrets.token_urlsafe(50)
    environment = Environment(SECRET_KEY_FALLBACKS=f"{good}, {other}")
    keys = [key.get_secret_value() for key in environment.SECRET_KEY_FALLBACKS]
    assert keys == [good, other]
    with pytest.raises(ValidationError, match="50 random characters"):
        Environment(SECRET_KEY_FALLBACKS=f"{good},short")
