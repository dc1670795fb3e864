"""How Django writes dates and times where no template says: in the back office."""
