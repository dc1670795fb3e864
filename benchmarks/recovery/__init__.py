"""What recovery rules gain: a replay of failed jobs under five policies."""
