"""Experiments that run from one command."""
