"""Folders that tests compare."""


def read_files(folder):
    """The bytes of every file in a folder, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
