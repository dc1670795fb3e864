import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from apps.production.domain.checks.documentation import updated as rules_page
from apps.production.domain.lifecycle.diagram import state_diagram, updated
from apps.production.domain.lifecycle.transitions import TRANSITIONS


def test_documented_states_are_those_of_the_table():
    old, new = updated(settings.BASE_DIR / "docs" / "requests.md")
    assert old == new, "run: python manage.py request_diagram"


def test_diagram_has_each_move():
    text = state_diagram()
    assert all(f"{step.old.value} --> {step.new.value}: " in text for step in TRANSITIONS)


def test_documented_rules_are_those_of_the_registry():
    old, new = rules_page(settings.BASE_DIR / "docs" / "checks.md")
    assert old == new, "run: python manage.py request_rules"


def test_command_mends_a_stale_page(tmp_path, settings):
    settings.BASE_DIR = tmp_path
    page = tmp_path / "docs" / "requests.md"
    page.parent.mkdir()
    page.write_text("Before\n<!-- begin: states -->\nold\n<!-- end: states -->\nAfter\n")
    with pytest.raises(CommandError, match="stale"):
        call_command("request_diagram", "--check")
    call_command("request_diagram")
    call_command("request_diagram", "--check")
    text = page.read_text()
    assert text.startswith("Before\n<!-- begin: states -->\n```mermaid")
    assert text.endswith("<!-- end: states -->\nAfter\n")
