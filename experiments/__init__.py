"""Studies that use snapsure; not part of the package."""
