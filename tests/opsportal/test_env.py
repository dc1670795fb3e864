"""The typed reader of the environment."""

import re
import secrets
from pathlib import Path

import pytest

from opsportal import setting_docs
from opsportal.env import REQUIRED, BadEnvironment, Environment

ROOT = Path(__file__).parents[2]
GOOD = {
    "SECRET_KEY": "for this test alone: fifty characters and more, none secret",
    "DATABASE_URL": "postgresql://u:p@db:5432/o",
    "REDIS_URL": "redis://queue:6379/0",
}


@pytest.fixture
def given(monkeypatch):
    """Set just these variables, and none of the portal's others."""

    def give(**variables: str) -> None:
        for name in Environment.model_fields:
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(f"{name}_FILE", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return give


def test_minimum_is_enough(given):
    given(**GOOD)
    assert Environment.read().TIME_ZONE == "UTC"


def test_everything_missing_is_named_at_once(given):
    given()
    with pytest.raises(BadEnvironment) as error:
        Environment.read()
    required = ("SECRET_KEY", "DATABASE_URL", "REDIS_URL")
    assert str(error.value).splitlines() == [f"{name} is not set." for name in required]


def test_missing_and_bad_are_named_together(given):
    given(SECRET_KEY="short", REDIS_URL="redis://queue")
    with pytest.raises(BadEnvironment) as error:
        Environment.read()
    first, second = str(error.value).splitlines()
    assert first == "DATABASE_URL is not set."
    assert second.startswith(
        "SECRET_KEY: must have at least 50 random characters; generate it with: python3 -c"
    )


@pytest.mark.parametrize(
    "key",
    [
        "k" * 50,
        "changeme" * 8,
        "1234567890" * 6,
        "my very secret key " * 3,
        f"django-insecure-{'x7Qp-2Lz' * 6}",
    ],
)
def test_guessable_key_is_refused(given, key):
    given(**{**GOOD, "SECRET_KEY": key})
    with pytest.raises(
        BadEnvironment, match="SECRET_KEY: must have at least 50 random characters"
    ) as error:
        Environment.read()
    assert key not in str(error.value)


@pytest.mark.parametrize("make", [secrets.token_urlsafe, secrets.token_hex])
def test_random_key_is_accepted(given, make):
    for _ in range(200):
        given(**{**GOOD, "SECRET_KEY": make(50)[:50]})
        Environment.read()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SECRET_KEY", "short"),
        ("DATABASE_URL", "mysql://db/o"),
        ("REDIS_URL", "amqp://queue"),
        ("PORTAL_URL", "portal.example"),
        ("PORTAL_URL", "https://[portal"),
        ("PORTAL_URL", "https://:8000"),
        ("PORTAL_URL", "https://portal:port"),
        ("DATABASE_URL", "postgresql://user:pass#word@db/o"),
        ("DATABASE_URL", "postgresql://user:pa/ss@db/o"),
        ("REDIS_URL", "redis://queue:port/0"),
        ("DEBUG", "perhaps"),
        ("TIME_ZONE", "Mars/Base"),
        ("LOG_LEVEL", "LOUD"),
        ("CAPTURE_MASK_NAMES", "("),
    ],
)
def test_bad_value_is_named_and_not_shown(given, name, value):
    given(**{**GOOD, name: value})
    with pytest.raises(BadEnvironment) as error:
        Environment.read()
    assert str(error.value).startswith(f"{name}: ")
    assert "db/o" not in str(error.value)


def test_value_from_a_file_loses_only_its_line_end(given, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(f" {GOOD['SECRET_KEY']} \n")
    given(
        **{name: value for name, value in GOOD.items() if name != "SECRET_KEY"},
        SECRET_KEY_FILE=str(secret),
    )
    read = Environment.read().SECRET_KEY.get_secret_value()
    assert read == f" {GOOD['SECRET_KEY']} "


def test_both_a_value_and_its_file_is_an_error(given, tmp_path):
    given(**GOOD, SECRET_KEY_FILE=str(tmp_path / "secret"))
    with pytest.raises(BadEnvironment, match="SECRET_KEY and SECRET_KEY_FILE are both set"):
        Environment.read()


def test_missing_file_is_named(given, tmp_path):
    given(
        **{name: value for name, value in GOOD.items() if name != "REDIS_URL"},
        REDIS_URL_FILE=str(tmp_path / "none"),
    )
    with pytest.raises(BadEnvironment, match=r"REDIS_URL_FILE: .*No such file"):
        Environment.read()


def test_lists_are_split_at_commas(given):
    given(**GOOD, LOG_ROOTS="/a, /b,", ALLOWED_HOSTS="x.example")
    environment = Environment.read()
    assert environment.LOG_ROOTS == [Path("/a"), Path("/b")]
    assert environment.ALLOWED_HOSTS == ["x.example"]


def test_example_and_page_list_every_setting():
    assert (ROOT / ".env.example").read_text() == setting_docs.env_example(Environment, REQUIRED)
    assert (ROOT / "docs/settings.md").read_text() == setting_docs.settings_page(
        Environment, REQUIRED
    )


def test_page_has_every_setting_once_below_a_heading():
    page = (ROOT / "docs/settings.md").read_text()
    assert re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE) == list(Environment.model_fields)
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(setting_docs.SECTIONS.values())
    assert page.index("\n## ") < page.index("| `SECRET_KEY` |")


STORE = "s3://portal/months?endpoint=https://s3.example.org"
KEYS = {"JOB_ARCHIVE_ACCESS_KEY": "access", "JOB_ARCHIVE_SECRET_KEY": "hidden"}


@pytest.mark.parametrize(
    "archive", ["", "/srv/months", "months", STORE, f"{STORE}&region=eu-1", "s3://b2?region=eu-1"]
)
def test_archive_of_jobs_is_a_directory_or_a_bucket(given, archive):
    given(**GOOD, **KEYS, JOB_ARCHIVE=archive)
    assert archive == Environment.read().JOB_ARCHIVE


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        ("https://s3.example.org/portal", "is neither a directory nor s3://BUCKET/PREFIX"),
        ("s3://portal", "needs an endpoint or a region"),
        ("s3:///months?region=eu-1", "is not a bucket and a prefix"),
        ("s3://portal/a/../b?region=eu-1", "is not a bucket and a prefix"),
        ("s3://access:hidden@portal?region=eu-1", "contains a key"),
        ("s3://portal?endpoint=s3.example.org", "has an endpoint that is not an address"),
        ("s3://portal?endpoint=https://a:hidden@s3", "has an endpoint that is not an address"),
        ("s3://portal?endpoint=https://s3/x", "has an endpoint that is not an address"),
        ("s3://portal?endpoint=https://s3:port", "has an endpoint that is not an address"),
        ("s3://portal?Region=eu-1", "has no option 'Region'"),
        ("s3://portal?region", "is not a URL"),
        ("s3://[portal?region=eu-1", "is not a URL"),
    ],
)
def test_bad_archive_of_jobs_is_named(given, archive, reason):
    given(**GOOD, **KEYS, JOB_ARCHIVE=archive)
    with pytest.raises(BadEnvironment, match=r"^JOB_ARCHIVE: ") as error:
        Environment.read()
    assert reason in str(error.value)
    assert "hidden" not in str(error.value)


def test_bucket_needs_its_keys(given):
    given(**GOOD, JOB_ARCHIVE=STORE, JOB_ARCHIVE_SECRET_KEY="")
    with pytest.raises(BadEnvironment) as error:
        Environment.read()
    assert str(error.value).splitlines() == [
        f"{name}: is needed for the object store of JOB_ARCHIVE." for name in KEYS
    ]
