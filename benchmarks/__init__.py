"""Ours beside what a user would pick instead, in one run: `make bench`."""
