"""Tables of the documentation that are written from the code."""

import shutil

import pytest
from django.core.management import CommandError, call_command

from apps.production.domain.documentation import state_diagram
from apps.production.domain.lifecycle.transitions import TRANSITIONS


def test_documentation_is_as_the_code_writes_it():
    call_command("write_docs", "--check")


def test_diagram_has_each_move():
    text = "\n".join(state_diagram())
    assert all(f"{step.old.value} --> {step.new.value}: " in text for step in TRANSITIONS)


@pytest.mark.parametrize(
    ("name", "mark", "first"),
    [
        ("requests.md", "states", "```mermaid"),
        ("checks.md", "rules", "### "),
        ("events.md", "events", "| kind |"),
        ("notifications.md", "groups", "| group |"),
    ],
)
def test_command_updates_a_stale_page(tmp_path, settings, name, mark, first):
    shutil.copytree(settings.BASE_DIR / "docs", tmp_path / "docs")
    settings.BASE_DIR = tmp_path
    page = tmp_path / "docs" / name
    page.write_text(f"Before\n<!-- begin: {mark} -->\nold\n<!-- end: {mark} -->\nAfter\n")
    with pytest.raises(CommandError, match=rf"docs/{name} is stale"):
        call_command("write_docs", "--check")
    call_command("write_docs")
    call_command("write_docs", "--check")
    text = page.read_text()
    assert text.startswith(f"Before\n<!-- begin: {mark} -->\n{first}")
    assert text.endswith(f"<!-- end: {mark} -->\nAfter\n")
