"""The reason that a person gives for what is done: whether it is there where it is needed, and can be kept."""

from apps.core.errors import InvalidFields

MAX_REASON = 2_000


def reason_problems(reason: str, *, needed: bool = True) -> dict[str, list[str]]:
    """Return what is wrong with a reason, by field."""
    if needed and not reason.strip():
        return {"reason": ["Say why: the others will read it."]}
    if len(reason) > MAX_REASON:
        return {"reason": [f"At most {MAX_REASON:,} characters."]}
    return {"reason": ["Text cannot hold the character NUL."]} if "\0" in reason else {}


def checked_reason(reason: str, *, needed: bool = True) -> str:
    """Return a reason without the blanks around it. Raises `InvalidFields`."""
    text = reason.strip()
    if problems := reason_problems(text, needed=needed):
        raise InvalidFields(problems)
    return text
