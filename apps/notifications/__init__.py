"""Who is told of what: mail, webhooks and Atom feeds about requests, by each person's own rules."""
