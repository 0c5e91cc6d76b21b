"""The only code with measuring side effects: each probe returns one record."""
