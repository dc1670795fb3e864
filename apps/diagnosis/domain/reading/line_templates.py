"""Templates of the lines of logs: those of failed jobs when they are analysed, of others later."""

from collections.abc import Iterable

from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.catalogue import text_of
from apps.diagnosis.engine.evidence.novelty import names_error, templates_of
from apps.search.domain.templates import TemplateLine


def template_lines(blocks: Iterable[Block]) -> dict[int, TemplateLine]:
    """Return the templates of one job's logs, by hash."""
    lines = {}
    for number, template in templates_of(blocks).items():
        lines[number] = TemplateLine(text_of(template), names_error(template))
    return lines
