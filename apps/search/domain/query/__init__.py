"""The language of the search: what a user types, as typed clauses, and back to text."""
