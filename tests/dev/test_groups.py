"""Tests that share a system part stay on one worker."""

import pytest


@pytest.mark.xdist_group("together")
def test_group_is_known_to_the_workers(request):
    """pytest-xdist tells groups by the end of a test's id;
    a pytest that hides it loses them without a word.
    """
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("runs without groups")
    assert request.node.nodeid.endswith("@together")
