"""Parse Torque's `.JB`: XML with the attributes of a job."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from apps.clusters.schedulers.environment import name_and_value

Variable = tuple[bytes, bytes]

_LIST = re.compile(rb"(<Variable_List\b[^>]*>)([^<]*)(</Variable_List>)")
# The cookie is a secret of Torque's daemons. The arguments are archived separately, with secrets
# masked.
_KEPT_ELSEWHERE = re.compile(rb"(<(?:submit_args|cookie)\b[^>]*>)[^<]*")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_LINE = re.compile(rb"((?:[^\\\n]++|\\.)+)\n?", re.DOTALL)
_NEXT_NAME = re.compile(rb",(?=[A-Za-z_][^\s,=]*=)")


class BadDescription(ValueError):
    """The content is not the XML of a job."""


@dataclass(frozen=True, slots=True)
class Description:
    """A `.JB`: text attributes by name, variables, and whether the job is still being received."""

    attributes: dict[str, str]
    variables: tuple[Variable, ...]
    is_incoming: bool


def read_description(content: bytes) -> Description:
    """Parse a `.JB`. Raises `BadDescription`, also for a DTD or entity."""
    job, codec = _parse(content)
    attributes = job.find("attributes")
    if job.tag != "job" or attributes is None:
        raise BadDescription("no job with attributes")
    listed = attributes.findtext("Variable_List") or ""
    return Description(
        attributes={child.tag: child.text or "" for child in attributes if not len(child)},
        variables=split_variables(listed.encode(codec, "xmlcharrefreplace")),
        is_incoming=(job.findtext("state"), job.findtext("substate")) == ("0", "0"),
    )


def without_secrets_of_torque(content: bytes) -> bytes:
    """Return the description without `cookie` and `submit_args`."""
    return _KEPT_ELSEWHERE.sub(rb"\1", content)


def with_variables(content: bytes, variables: Iterable[Variable]) -> bytes:
    """Return the description with new variables, in the same format.

    Return "" if it does not contain variables in pbs_server's format: it might contain unmasked
    secrets.
    """
    pairs = tuple(variables)
    changed, count = _LIST.subn(lambda match: match[1] + _join(match[2], pairs) + match[3], content)
    return changed if count == 1 else b""


def split_variables(text: bytes) -> tuple[Variable, ...]:
    """Split a `Variable_List`.

    Up to Torque 5, each variable ends with a newline, and `" ' , \\` and newlines are escaped by a
    backslash. Torque 6 joins variables with commas and escapes nothing: a comma separates variables
    if `NAME=` follows.
    """
    if _has_escaped_lines(text):
        texts = [_ESCAPED.sub(rb"\1", line) for line in _LINE.findall(text)]
    else:
        texts = [piece for piece in _NEXT_NAME.split(text) if piece]
    return tuple(map(name_and_value, texts))


def _join(before: bytes, variables: Iterable[Variable]) -> bytes:
    texts = [name + b"=" + value for name, value in variables]
    if _has_escaped_lines(before):
        joined = b"".join(re.sub(rb"([\"',\\\n])", rb"\\\1", text) + b"\n" for text in texts)
    else:
        joined = b",".join(texts)
    for plain, escaped in ((b"&", b"&amp;"), (b"<", b"&lt;"), (b">", b"&gt;"), (b"\r", b"&#13;")):
        joined = joined.replace(plain, escaped)
    return joined


def _has_escaped_lines(text: bytes) -> bool:
    plain = _ESCAPED.sub(b"", text)
    return plain.endswith(b"\n") and b"," not in plain


def _parse(content: bytes) -> tuple[Element, str]:
    """Return the root element, and the encoding that restores its bytes, which may not be UTF-8."""
    fault = ""
    for encoding in ("utf-8", "iso-8859-1"):
        parser = DefusedXMLParser(encoding=encoding, forbid_dtd=True)
        try:
            parser.feed(content)
            return parser.close(), encoding
        except (ParseError, DefusedXmlException) as error:
            fault = str(error)
    raise BadDescription(fault)
