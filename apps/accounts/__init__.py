"""Users, experiments, and roles of users for experiments."""
