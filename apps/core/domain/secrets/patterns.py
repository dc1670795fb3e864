"""Find secrets in text, with one set of rules for logs, variables and command lines.

A secret is recognised by its form, such as a JSON web token, or by the name before it, such as
`password: …`, whatever its length. All searches use RE2 or a few bytes: a job may write text that
would keep a backtracking search busy for minutes.
"""

import re
from collections import deque
from collections.abc import Iterator

import re2

Span = tuple[int, int]


def latin_options() -> re2.Options:
    """Return options for RE2 that treat every byte as a character (Latin-1)."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    return options


def _compile(pattern: bytes) -> "re2._Regexp":
    return re2.compile(pattern, latin_options())


#: Prefixes of alphanumeric tokens of GitHub, Hugging Face, npm, Grafana and others.
_PREFIXES = (
    rb"\b(?:gh[pousr]_|hf_|api_org_|npm_|AKCp|cmVmd|LTAI|glc_|dapi|do[opr]_v1_|pplx-|pul-|rdme_"
    rb"|rubygems_|sntryu_"
    rb"|shippo_[a-z]{4}_|ntn_|EZ[AT]K|EAA[MC]|pnu_)"
)
#: Prefixes of tokens with other characters, such as tokens of GitLab, Google, Vault, PyPI and
#: OpenShift.
_PREFIXES_OF_ANY = (
    rb"\b(?:github_pat_|gl(?:pat|dt|rtr?|cbt|ptt|ft|imt|agent|oas|soat|ffct)-|ya29\.|AIza"
    rb"|hv[sb]\.|pypi-Ag|dckr_pat_"
    rb"|glsa_|sha256~|ABSK|PMAK-|sntrys_|sq0atp-|pscale_[a-z]+_|xkeysib-|HRKU-AA|p8e-)"
)
#: Secrets recognised by their form.
SECRET_VALUES = _compile(
    rb"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@"  # a URL with a password
    rb"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)?"  # JSON web token
    rb"|-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    rb"|" + _PREFIXES + rb"[A-Za-z0-9]{20,}|" + _PREFIXES_OF_ANY + rb"[A-Za-z0-9_.=+/-]{20,}"
    rb"|\bsk-[A-Za-z]{2,10}[0-9]{0,2}-[A-Za-z0-9_-]{16,}|\bsk-[A-Za-z0-9]{32,}"
    rb"|xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|hooks\.slack\.com/[a-z]+/[A-Za-z0-9+/]{20,}"
    rb"|\b[rs]k_(?:live|test|prod)_[A-Za-z0-9]{10,}|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{30,}"
    rb"|\b(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b|AGE-SECRET-KEY-1[A-Z0-9]{50,}"
    rb"|\b[0-9]{5,16}:AA[A-Za-z0-9_-]{33}\b"
    rb"|\bMDA[a-z][A-Za-z0-9_-]{60,}"  # a macaroon, as dCache gives them
)
_FORMS = (
    rb"://|eyJ|PRIVATE KEY|xox[a-z]|hooks\.slack|\b[rs]k[-_]|\bSG\.|A3T|A[KSBC][IC]A|AGE-SECRET"
    rb"|[0-9]:AA|\bMDA|" + _PREFIXES + rb"|" + _PREFIXES_OF_ANY
)

_KEYS = (
    rb"(?:access|account|api|auth|client|consumer|database|db|deploy|encryption|license|masking"
    rb"|master|private|security"
    rb"|service|shared|signing|storage)[_.-]?key"
)
_WORDS = (
    rb"passw(?:or)?d|passphrase|passcode|secret|token|credential|authorization|cookie|macaroon"
    rb"|x-(?:amz|goog)-signature|" + _KEYS
)
# Endings of secret names: `PROCESSING_PASS` and `PWD` are no secrets.
_ENDS = (
    rb"(?:auth|cert|database|db|default|ftp|http|imap|key|ldap|login|mail|mq|pg|proxy|redis|root"
    rb"|smtp|sql|user)"
    rb"[_.-]?(?:pass|pwd)|(?:^|[\s\"'{,;&?(_])jwt|git(?:hub|lab)?_pat|\bcreds|_creds|_auth"
)
_NAME = rb"(?:(?:" + _WORDS + rb")[A-Za-z0-9_-]*|(?:" + _ENDS + rb"))"
_QUOTED = rb"\\+\"([^\"\\]+)|\"((?:[^\"\\]|\\.)+)|'((?:[^'\\]|\\.)+)|`([^`]+)"
_REST_OF_BARE = rb"[^\s\"'`,;&<]*)"
_BARE = rb"([^\s\"'`,;&<>\\]" + _REST_OF_BARE
_BARE_BUT_OPTION = rb"([^\s\"'`,;&<>\\-]" + _REST_OF_BARE
_SCHEME = rb"(?:(?:bearer|basic|token|negotiate|digest|apikey)[ \t]+)?"
#: `NAME=x`, `name: "x"`, `"name": "x"`, `name => 'x'`, `<name>x</name>`, `"name": "token", "value":
#: "x"`.
_ASSIGNED = _compile(
    rb"(?i)" + _NAME + rb"([\\\"'`\[\]0-9]*[ \t]*"
    rb"(?:=>|:{1,3}=|[!=]={1,2}|[?.+]?=|:|\|\||>|,?[ \t]*[\"']?value[\"']?[ \t]*[:=])[ \t]*@?)"
    + _SCHEME + rb"(?:" + _QUOTED + rb"|" + _BARE + rb")"
)  # fmt: skip
#: `setenv("NAME", "x")` and `secret("x")`.
_CALLED = _compile(
    rb"(?i)" + _NAME + rb"([\"'][ \t]*,[ \t]*|(?:\.assign)?[ \t]*\([ \t]*)(?:" + _QUOTED + rb")"
)
#: `--password x`, also as a list: `"--password", "x"`.
_OPTION = _compile(
    rb"(?i)(?:^|[\s\"'`\[(,])--?[A-Za-z0-9_.-]*" + _NAME + rb"([\"'`]?,?[ \t]+)"
    rb"(?:" + _QUOTED + rb"|" + _BARE_BUT_OPTION + rb")"
)  # fmt: skip
#: `curl -u user:x`, `sshpass -p x`, `Cookie: a=x; b=x`, a signed URL, any bearer token.
_SPECIAL = _compile(
    rb"(?i)\bcurl\b.*?[ \t](?:-u|--user|--proxy-user)[ =]?[ \t]*[\"']?[^\s:\"']+:([^\s\"']+)"
    rb"|\bsshpass[ \t]+-p[ \t]*[\"']?([^\s\"']+)"
    rb"|cookie[\"']?[ \t]*:[ \t]*[\"']?([^\s\"'=;]+=[^\"']+)"
    rb"|[?&]sig=([A-Za-z0-9%/+=_-]{20,})"
    rb"|\bbearer[ \t]+([A-Za-z0-9._~+/=-]{16,})"
)
#: A cheap test: a line that does not match has no secret.
SECRET_HINT = _compile(
    _FORMS + rb"|(?i:passw|passphrase|passcode|secret|token|credential|authorization|cookie"
    rb"|macaroon|-signature|sshpass|curl|[?&]sig=|bearer|" + _KEYS + rb"|" + _ENDS + rb")"
)  # fmt: skip
_KEY_BEGIN = re.compile(rb"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_KEY_END = re.compile(rb"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}")
_KEY_HEADERS = (b"Proc-Type:", b"DEK-Info:", b"Comment:", b"Version:", b"Hash:")
_KEY_TEXT = re.compile(rb"[A-Za-z0-9+/]+={0,2}|=[A-Za-z0-9+/]{4}")
#: Lines of a key are longer than words, except for the last one, which stands alone in its line.
_SHORTEST_KEY_TEXT = 16
_SHORT_LINES = 2
#: The longest private key with its BEGIN and END. A part of a log is read with this much context.
CONTEXT_BYTES = 16 * 1024

#: A path to a secret is no secret, but only under names of files or of harmless values.
PATH = re.compile(rb"(FILE:)?(~|\.{0,2})/[^\s;]*")
NAMES_OF_PATHS = re.compile(
    r"(?i)(file|path|dir|directory|home|sock|socket|cache|store|proxy|credentials?|creds)$"
)
HARMLESS_NAMES = re.compile(r"(?i)^(SLURM_(?!JWT)|SBATCH_|TOKENIZERS_)")
#: Endings of names of facts about a secret.
_ABOUT = re.compile(
    r"(?i)[_-]?(ids?|names?|len|length|size|type|count|limit|ttl|age|lifetime|exp"
    r"|expir[a-z]{1,8}(?:_in|_at|_on)?|ur[il]"
    r"|endpoint|version|issuer|audience|scopes?|kind|format|policy|manager|provider|class"
    r"|fields?|header|index"
    r"|prefix|algorithm|method|attempts?)$"
)
#: A path that no secret looks like, whatever its name.
_SYSTEM_PATH = re.compile(
    rb"/(?:afs|cvmfs|data|dev|eos|etc|home|opt|pnfs|root|run|scratch|srv|tmp|usr"
    rb"|var)(?:/[\w.@~-]+)+"
)
_PASSWORD = re.compile(r"(?i)pass|pwd")
#: Longer numbers may be secrets; as a password, numbers of any length may be.
_LONGEST_NUMBER = 3
_PLURAL = re.compile(r"(?i)(token|cookie|credential|secret)s$")
#: A placeholder for a secret, such as `$PASSWORD`.
PLACEHOLDER = re.compile(
    rb"\$(?:[A-Z_][A-Z0-9_]*|[0-9@*#]|\{[^{}]*\}|\{\{.*|\w*\(.*)|\{\w*\}|<[\w -]*>?|%\(?\w+\)?s?"
    rb"|\W+|\[\w*\]"
    rb"|<masked:[0-9a-f]{16}>"
)
#: Code in the lines of a traceback, such as `token = os.environ["X"]` and
#: `password=get_password()`.
_CODE = re.compile(
    rb":|(?:self|cls|os|args|config|settings|options|request|kwargs)(?:\.\w|\[)"
    rb"|[A-Za-z_][\w.]*\(|[A-Z]\w+\["
)
_WORDS_OF_MESSAGES = frozenset(
    (
        b"a absent accepted an and apikey are authentication authorization basic bearer bytes "
        b"cannot could denied digest disabled empty enabled error expired failed failure false "
        b"file for found from gsi has here idtoken idtokens in incorrect int invalid is it "
        b"kerberos krb5 ldap mismatch missing munge must negotiate no none not null oauth off "
        b"oidc ok on one only option optional or please refused rejected required revoked "
        b"scitoken scitokens set ssl str string the tls token true undefined unknown unset "
        b"unsupported use used using valid value was will with wrong x509 yes you your"
    ).split()
)
_WORD = re.compile(rb"[A-Za-z]?[a-z]+")
_FOLLOWED_BY_WORD = re.compile(rb"[ \t]+[A-Za-z]")
_NAME_BACKWARDS = re.compile(rb"[A-Za-z0-9_.-]*")
_LONGEST_NAME = 64
#: If a line has more secrets, the rest of the line counts as secret.
_MOST_SECRETS = 50
_MOST_SEARCHED_BYTES = 4_000_000


def secrets_in(line: bytes) -> list[Span]:
    """Return the spans of secrets in a line, ordered and disjoint."""
    return _joined([*_spans_of(SECRET_VALUES, line), *named_secrets_in(line)])


def named_secrets_in(line: bytes) -> list[Span]:
    """Return the spans of secrets that are recognised by the name before them."""
    spans: list[Span] = []
    for pattern in (_ASSIGNED, _CALLED, _OPTION, _SPECIAL):
        spans += _spans_of(pattern, line)
    return _joined(spans)


def _spans_of(pattern: "re2._Regexp", line: bytes) -> Iterator[Span]:
    """Yield the spans in which a pattern finds secrets; after too many, the rest of the line."""
    position = 0
    secrets = 0
    # Every search may scan the whole line.
    for _ in range(_MOST_SECRETS + _MOST_SEARCHED_BYTES // (len(line) + 1)):
        match = pattern.search(line, position)
        if match is None:
            return
        begin, end = _span(match, pattern)
        if pattern in (SECRET_VALUES, _SPECIAL) or _is_secret(pattern, match, line, begin, end):
            yield begin, end
            secrets += 1
            position = end
        else:
            position = max(begin, match.start() + 1)
        if secrets == _MOST_SECRETS:
            break
    if position < len(line):
        yield position, len(line)


def _span(match: "re2._Match", pattern: "re2._Regexp") -> Span:
    """Return the span of the value in a match: its last matching group, else the whole match."""
    span: Span = match.span() if pattern is SECRET_VALUES else match.span(match.lastindex)
    return span


def _is_secret(
    pattern: "re2._Regexp", match: "re2._Match", line: bytes, begin: int, end: int
) -> bool:
    """Return whether a value is a secret.

    Placeholders, words of a message, paths and facts about a secret are none.
    """
    value = line[begin:end]
    separator = match[1]
    if PLACEHOLDER.fullmatch(value) or _CODE.match(value):
        return False
    start = match.start()
    before = line[max(0, start - _LONGEST_NAME) : start]
    # The part of the name before the word that was recognised.
    name_backwards = _NAME_BACKWARDS.match(before[::-1])
    prefix = name_backwards.end() if name_backwards else 0
    name = before[len(before) - prefix :] + line[start : match.start(1)][-_LONGEST_NAME:]
    is_element = before[: len(before) - prefix].endswith(b"<")
    if b">" in separator and b"=" not in separator and not is_element:
        return False
    is_option = pattern is _OPTION
    return not (
        _is_harmless(name.decode("latin-1"), value, is_option=is_option)
        or _is_prose(separator, line, begin, end)
    )


def _is_harmless(name: str, value: bytes, *, is_option: bool) -> bool:
    if HARMLESS_NAMES.search(name) or _ABOUT.search(name):
        return True
    if PATH.fullmatch(value) and NAMES_OF_PATHS.search(name):
        return True
    if _SYSTEM_PATH.fullmatch(value):
        return True
    if value.isdigit() and (
        _PLURAL.search(name) or (len(value) <= _LONGEST_NUMBER and not _PASSWORD.search(name))
    ):
        return True
    is_usage = (
        is_option
        and value.isupper()
        and value.decode("latin-1").lower() in name.lower().replace("-", "_")
    )
    return (
        is_usage
        or value.lower().strip(b".!)]},:") in _WORDS_OF_MESSAGES
        or value.decode("latin-1") == name
    )


def _is_prose(separator: bytes, line: bytes, begin: int, end: int) -> bool:
    """Return whether a value is a word in a sentence.

    For example in `token: signature verification failed`.
    """
    is_bare = line[begin - 1 : begin] not in (b'"', b"'", b"`")
    return (
        is_bare
        and b":" in separator
        and _WORD.fullmatch(line[begin:end]) is not None
        and _FOLLOWED_BY_WORD.match(line, end) is not None
    )


def private_keys_in(data: bytes) -> list[Span]:
    """Return the spans of private keys, from BEGIN to END.

    If a key is cut off, its span has the lines before or after the cut.
    """
    if b"PRIVATE KEY" not in data:
        return []
    begins = [match.span() for match in _KEY_BEGIN.finditer(data)]
    ends = deque(match.span() for match in _KEY_END.finditer(data))
    spans: list[Span] = []
    position = 0

    def take_end() -> int:
        """Handle an END without its BEGIN."""
        begin, after = ends.popleft()
        spans.append((_first_key_line(data, position, begin), after))
        return after

    starts = [begin for begin, _ in begins[1:]] + [len(data)]
    for (begin, after), following in zip(begins, starts, strict=False):
        while ends and ends[0][0] < begin:
            position = take_end()
        limit = min(following, begin + CONTEXT_BYTES)
        is_whole = bool(ends) and ends[0][1] <= limit
        if is_whole:
            position = ends.popleft()[1]
        else:
            position = _last_key_line(data, after, limit)
        spans.append((begin, position))
    while ends:
        position = take_end()
    return _joined(spans)


def _last_key_line(data: bytes, begin: int, limit: int) -> int:
    """Return the end of the lines of a key that follow its first line."""
    position = data.find(b"\n", begin, limit) + 1
    if not position:
        return limit if data[begin:limit].startswith(b"\\n") else begin
    last = begin
    while position < limit:
        end = data.find(b"\n", position, limit) + 1 or limit
        line = data[position:end].strip()
        if line and not _is_key_line(line):
            break
        position = end
        last = end if line else last
    return last


def _first_key_line(data: bytes, floor: int, end: int) -> int:
    """Return the start of the lines of a key that precede its last line."""
    floor = max(floor, end - CONTEXT_BYTES)
    first = position = data.rfind(b"\n", floor, end) + 1
    # The whole key is in one line.
    if not position:
        return floor
    while position > floor:
        start = data.rfind(b"\n", floor, position - 1) + 1 or floor
        line = data[start:position].strip()
        # The last line may be short, and in some formats a checksum follows it.
        is_end = (
            _KEY_TEXT.fullmatch(line) is not None and data.count(b"\n", start, end) <= _SHORT_LINES
        )
        if line and not is_end and not _is_key_line(line):
            break
        position = start
        first = start if line else first
    return first


def _is_key_line(line: bytes) -> bool:
    """Return whether a line may be inside a private key, whatever a logger writes before it."""
    if any(header in line for header in _KEY_HEADERS):
        return True
    text = line.rstrip(b"\"',").rsplit(None, 1)[-1:]
    return (
        bool(text)
        and len(text[0]) >= _SHORTEST_KEY_TEXT
        and _KEY_TEXT.fullmatch(text[0]) is not None
    )


def _joined(spans: list[Span]) -> list[Span]:
    """Return spans in order, with overlapping ones merged."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif begin < end:
            joined.append((begin, end))
    return joined
