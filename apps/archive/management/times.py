"""Times in arguments and output of commands: ISO 8601, in UTC."""

from datetime import UTC, datetime


def to_time(text: str) -> datetime:
    """Read a time; one without a zone is in UTC. Raises `ValueError`."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
