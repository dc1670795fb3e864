"""Events, outbox, plugin registry, health: the base of every other app. Imports no app."""
