"""What the checks of a request say, as tests read it."""

from apps.production.domain.checks import Facts
from apps.production.domain.checks.report import messages_of, run_checks
from apps.production.domain.content.model import RequestContent


def blocking(content: RequestContent, facts: Facts) -> dict[str, list[str]]:
    """Return all problems that prevent submission, by field path."""
    return messages_of(found for found in run_checks(content, facts) if found.blocks)
