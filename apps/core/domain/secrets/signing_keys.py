"""The keys that sign: the present `SECRET_KEY`, and former ones that still count."""

from django.conf import settings
from django.utils.crypto import salted_hmac


def signing_keys() -> list[str]:
    """Return the present key, and after it the keys of `SECRET_KEY_FALLBACKS`."""
    return [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]


def key_id(key: str) -> str:
    """Return 16 hexadecimal digits by which a key is recognised, and which do not reveal it."""
    return salted_hmac("opsportal.key-id", "", secret=key, algorithm="sha256").hexdigest()[:16]


def find_key(identifier: str) -> str:
    """Return the key of this id, or the present one where that key does not count any more."""
    for key in signing_keys():
        if key_id(key) == identifier:
            return key
    return settings.SECRET_KEY
