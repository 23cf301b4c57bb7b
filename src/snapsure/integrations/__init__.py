"""Adapters to other libraries: thin, each optional, none imported by the rest."""
