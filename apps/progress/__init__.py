"""How far requests are: counts by stage, expected end, their moves as jobs run and end, the production report."""
