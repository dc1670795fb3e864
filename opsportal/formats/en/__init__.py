"""Formats for the language of the portal, which has only one."""
