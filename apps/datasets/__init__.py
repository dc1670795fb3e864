"""Datasets: the catalogues that know them, and what these answered."""
