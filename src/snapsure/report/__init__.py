"""What a score table says: computed in one place, drawn in another."""
