"""Broken and repeated plugins are reported and never fatal."""

from datetime import date
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from apps.core.domain import plugins
from apps.core.domain.plugins import Registry, UnknownPlugin


@pytest.fixture
def registry(monkeypatch):
    third_party = [
        EntryPoint("path", "somewhere:Else", "test.group"),
        EntryPoint("broken", "no_such_module:Thing", "test.group"),
        EntryPoint("half", "pathlib:NoSuchName", "test.group"),
        EntryPoint("date", "datetime:date", "test.group"),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: third_party)
    monkeypatch.setattr(plugins, "REGISTRIES", [])
    return Registry(group="test.group", builtins={"path": "pathlib:Path"})


def test_builtin_and_third_party_load(registry):
    assert registry.get("path") is Path
    assert registry.get("date") is date


def test_repeated_name_keeps_the_builtin_and_is_reported(registry):
    assert registry.get("path") is Path
    assert "has the same name" in registry.problems["path"]


def test_broken_plugins_are_reported_and_the_others_work(registry):
    assert sorted(registry.working()) == ["date", "path"]
    assert "ModuleNotFoundError" in registry.problems["broken"]
    assert "AttributeError" in registry.problems["half"]


def test_unknown_name_lists_what_there_is(registry):
    with pytest.raises(UnknownPlugin, match="there are: broken, date, half, path"):
        registry.get("nothing")
