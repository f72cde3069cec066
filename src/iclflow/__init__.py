"""A lab for how attention learns to learn in context."""
