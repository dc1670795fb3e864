"""Events, outbox, plugin registry, health: what every other app builds on. Imports no app."""
