"""Path converters of the portal's addresses; `opsportal.urls` registers them."""

from django.urls.converters import StringConverter


class AnyTextConverter(StringConverter):
    """Any text: a scheduler may report a host or user with a slash or a line break."""

    regex = r"[\s\S]+"
