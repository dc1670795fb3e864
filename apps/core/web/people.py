"""How people are named where one of them is chosen."""

from django.db.models import Model


def name_of(record: Model) -> str:
    """Return the name of a person with the user name, `Ada Novak (admin)`; else the record's."""
    full_name = record.get_full_name() if hasattr(record, "get_full_name") else ""
    return f"{full_name} ({record})" if full_name else str(record)
