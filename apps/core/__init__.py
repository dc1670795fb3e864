"""Events, outbox, plugin registry, health: the base of all other apps. It imports no other app."""
