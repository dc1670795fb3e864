"""Recovery rules: what is done about failed jobs without a person, and whether it helps."""
