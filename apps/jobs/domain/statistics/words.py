"""Words for values of the statistics that other apps can explain, such as exit codes."""

from collections.abc import Collection, Mapping
from typing import Protocol

from django.conf import settings

from apps.core.domain.plugins import Registry


class StatisticsWords(Protocol):
    """A plugin that explains values: takes them by dimension;
    returns words by dimension and value.
    """

    def __call__(self, values: Mapping[str, Collection[str]]) -> Mapping[tuple[str, str], str]: ...


WORDS: Registry[StatisticsWords] = Registry("opsportal.statistics_words", settings.STATISTICS_WORDS)


def words_of(values: Mapping[str, Collection[str]]) -> dict[tuple[str, str], str]:
    """Return the meanings of values, by dimension and value;
    values that no plugin explains are left out.
    """
    meanings: dict[tuple[str, str], str] = {}
    for plugin in WORDS.working().values():
        meanings |= plugin(values)
    return meanings
