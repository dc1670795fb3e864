"""From a scheduler's spool into a local journal, and from there to every sink. Knows neither ORM nor settings."""
