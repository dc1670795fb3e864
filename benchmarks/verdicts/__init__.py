"""How often verdicts on real logs are right: labels, sources, and the run over them."""
