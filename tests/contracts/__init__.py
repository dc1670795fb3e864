"""Contract tests: what every plugin of a kind must pass, built-in or not."""

import pytest

pytest.register_assert_rewrite("tests.contracts.scheduler")
