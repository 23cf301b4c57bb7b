"""What writes parts of this repository: tables, pages, locks; not part of the package."""
