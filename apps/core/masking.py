"""Keeps secrets out of what is stored: values of variables that hold one become a keyed fingerprint.

Two equal values have equal fingerprints, so that they can be compared; none can be turned back without the key.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

Variable = tuple[bytes, bytes]

# A path says where a secret lies, and is none itself: only under names that speak of a file, or of no secret.
_PATH = re.compile(rb"(FILE:)?(~|\.{0,2})/[^\s;]*")
_NAMES_OF_PATHS = re.compile(r"(?i)(file|path|dir|directory|home|sock|socket|cache|store|proxy|credentials?|creds)$")
_HARMLESS = re.compile(r"(?i)^(SLURM_(?!JWT)|SBATCH_|TOKENIZERS_)")
_SECRET_VALUES = re.compile(
    rb"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@"  # a URL with a password
    rb"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"  # JSON web token
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    rb"|\b(gh[pousr]_[A-Za-z0-9]{20,}|glpat-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,})"
)
# `NAME=value` in a command line, the last one of `--export=NAME=value`.
_ASSIGNMENT = re.compile(r"\b([A-Za-z_]\w*)=([^\s,;=]+)(?=[\s,;]|$)")
_HINT = re.compile(rb"://|eyJ|PRIVATE KEY|gh[pousr]_|glpat-|xox[abprs]-")  # cheap: without it no value is secret


class Masker:
    """Masks by the rules above and by `names`, a regular expression; with an empty one nothing is masked."""

    def __init__(self, *, names: str, key: bytes) -> None:
        self._names = re.compile(names) if names else None
        self._key = hashlib.sha256(b"opsportal masking" + key).digest()
        self._is_secret_name = lru_cache(maxsize=10_000)(self._matches)

    def mask(self, variables: Sequence[Variable]) -> tuple[tuple[Variable, ...], tuple[str, ...]]:
        """Return the variables with secrets masked, and the names of those that were."""
        if self._names is None:
            return tuple(variables), ()
        hinted = _HINT.search(b"\0".join([value for _, value in variables])) is not None
        secret = {
            index
            for index, (name, value) in enumerate(variables)
            if (self._is_secret_name(name) and self._hides(name, value)) or (hinted and _SECRET_VALUES.search(value))
        }
        if not secret:
            return tuple(variables), ()
        masked = tuple(
            (name, self.fingerprint(value)) if index in secret else (name, value)
            for index, (name, value) in enumerate(variables)
        )
        return masked, tuple(dict.fromkeys(text(variables[index][0]) for index in sorted(secret)))

    def mask_text(self, line: str) -> str:
        """Return a command line or comment with its secrets masked, given as `NAME=value` or plain to see."""
        if self._names is None:
            return line
        masked = _ASSIGNMENT.sub(self._mask_assignment, line).encode("utf-8", "surrogatepass")
        return _SECRET_VALUES.sub(lambda found: self.fingerprint(found[0]), masked).decode("utf-8", "surrogatepass")

    def _mask_assignment(self, found: re.Match[str]) -> str:
        name, value = found[1].encode(), found[2].encode("utf-8", "surrogatepass")
        if not (self._is_secret_name(name) and self._hides(name, value)):
            return found[0]
        return f"{found[1]}={self.fingerprint(value).decode()}"

    def fingerprint(self, value: bytes) -> bytes:
        """Return what stands for `value` where it would be stored."""
        digest = hmac.new(self._key, value, hashlib.sha256).hexdigest()[:16]
        return f"<masked:{digest}>".encode()

    def _hides(self, name: bytes, value: bytes) -> bool:
        return bool(value) and not (_PATH.fullmatch(value) and _NAMES_OF_PATHS.search(text(name)))

    def _matches(self, name: bytes) -> bool:
        decoded = text(name)
        return bool(self._names and self._names.search(decoded) and not _HARMLESS.search(decoded))


def text(raw: bytes) -> str:
    """Return bytes as text that any store takes; what is no UTF-8 shows as `\\xNN`."""
    return raw.decode("utf-8", "backslashreplace")


def value_of(variables: Iterable[Variable], name: bytes) -> str:
    """Return the value of a variable as text, or an empty one."""
    return next((text(value) for key, value in variables if key == name), "")
