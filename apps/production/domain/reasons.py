"""Validation of the reasons that users give for actions."""

from apps.core.errors import InvalidFields

MAX_REASON = 2_000


def reason_problems(reason: str, *, needed: bool = True) -> dict[str, list[str]]:
    if needed and not reason.strip():
        return {"reason": ["Enter a reason."]}
    if len(reason) > MAX_REASON:
        return {"reason": [f"Use at most {MAX_REASON:,} characters."]}
    if "\0" not in reason:
        return {}
    return {"reason": ["Remove the NUL character."]}


def checked_reason(reason: str, *, needed: bool = True) -> str:
    text = reason.strip()
    if problems := reason_problems(text, needed=needed):
        raise InvalidFields(problems)
    return text
