"""The form field of plugins."""

from typing import Any

from django import forms

from apps.core.domain.plugins import Registry


class PluginField(forms.ChoiceField):
    """The name of an installed plugin.

    If the stored one is gone, none is chosen in its place.
    """

    def __init__(self, registry: Registry[Any], **more: Any) -> None:
        names = registry.names()
        super().__init__(choices=[("", "---------"), *zip(names, names, strict=True)], **more)
