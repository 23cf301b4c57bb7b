"""What is made or checked by hand or by `make`: pages, tables, the lock, the wheel."""
