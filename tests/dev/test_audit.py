"""What is made of the output of pip-audit."""

import json

import pytest

from dev.audit import verdict

SKIPPED = {
    "name": "redis",
    "skip_reason": "Dependency not found on PyPI and could not be audited: redis (6.4.0)",
}
SAFE = {"name": "django", "version": "5.2.19", "vulns": []}
KNOWN = {"name": "jinja2", "version": "3.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1"]}]}


@pytest.mark.parametrize(
    ("packages", "passed", "words"),
    [
        ([SAFE], True, "none known in 1 packages"),
        ([SAFE, KNOWN, SKIPPED], False, "jinja2 3.0: PYSEC-1, fixed in 3.1"),
        ([SAFE, SKIPPED], True, "skipped for 1 of 2 packages: Dependency not found"),
    ],
)
def test_packages_are_judged(packages, passed, words):
    judgement = verdict(json.dumps({"dependencies": packages, "fixes": []}), "")
    assert judgement[0] is passed
    assert judgement[1].startswith(words)


@pytest.mark.parametrize("output", ["", "[]", "null", "no JSON"])
def test_database_out_of_reach_is_no_failure(output):
    passed, words = verdict(output, "Traceback\nConnectionError: no route to host")
    assert passed
    assert words == "skipped, no answer of the database: ConnectionError: no route to host"
