"""Notifications about requests: list, mail, webhooks and Atom feeds, by the rules of each user."""
