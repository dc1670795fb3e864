"""Explanations of statistics values that other apps provide, such as exit codes."""

from collections.abc import Collection, Mapping
from typing import Protocol

from django.conf import settings

from apps.core.domain.plugins import Registry


class StatisticsWords(Protocol):
    """A plugin that explains values.

    It takes values by dimension and returns texts by dimension and value.
    """

    def __call__(self, values: Mapping[str, Collection[str]]) -> Mapping[tuple[str, str], str]: ...


WORDS: Registry[StatisticsWords] = Registry("opsportal.statistics_words", settings.STATISTICS_WORDS)


def words_of(values: Mapping[str, Collection[str]]) -> dict[tuple[str, str], str]:
    """Return explanations by dimension and value, for values that a plugin explains."""
    meanings: dict[tuple[str, str], str] = {}
    for plugin in WORDS.working().values():
        meanings |= plugin(values)
    return meanings
