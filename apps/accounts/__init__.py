"""People, experiments, and who may do what for which experiment."""
