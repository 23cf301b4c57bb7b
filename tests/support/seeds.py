"""What a process of its own does for a seed: it loads nothing but PyTorch."""

import threading


def record_and_count_threads(folder, seed):
    """Record a snapshot, and return the seed with the number of PyTorch's threads."""
    import torch

    (folder / f"epoch-{seed:06d}.safetensors").touch()
    return folder / f"{seed}-{torch.get_num_threads()}"


def fail_beside_one_that_waits(folder, seed):
    """Fail for the second seed; the first says, after long, that nobody has ended it."""
    if seed:
        raise ValueError("this seed fails")
    threading.Event().wait(300)
    (folder / "waited").touch()
    return folder
