"""How logs get into the index of the search, stay equal to what is kept, and are compared."""
