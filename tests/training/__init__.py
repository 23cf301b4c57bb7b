"""Losses and students."""
