"""What writes or checks parts of this repository: tables, pages, the lock, the wheel."""
