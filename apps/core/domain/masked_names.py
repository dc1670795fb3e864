"""The default of CAPTURE_MASK_NAMES: shared by the portal's settings and the program `capture`."""

#: Regular expression of names of environment variables whose values are secrets.
MASKED_NAMES = (
    r"(?i)(token|passw(or)?d|passphrase|secret|credential|authorization|cookie|(^|_)jwt$"
    r"|git(hub|lab)?_pat$"
    r"|(api|access|private|encryption|signing|masking|master)_?key"
    r"|(auth|cert|db|default|ftp|http|imap|key|ldap|login|mail|mq|pg|proxy|redis|root"
    r"|smtp|sql|user)_?(pass|pwd)$)"
)
