"""A small real text set that comes with packages: which library does a docstring come from?"""

import inspect
from importlib import import_module

import numpy as np

LIBRARIES = {
    "numpy": ["numpy", "numpy.linalg", "numpy.fft", "numpy.random", "numpy.ma"],
    "sklearn": ["sklearn.linear_model", "sklearn.metrics", "sklearn.cluster", "sklearn.ensemble"],
    "torch": ["torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.linalg"],
}


def docstrings(count, seed=0):
    """The opening words of docstrings, and the number of the library of each."""
    texts = {}
    for label, modules in enumerate(LIBRARIES.values()):
        for name in modules:
            module = import_module(name)
            for member in sorted(n for n in vars(module) if not n.startswith("_")):
                words = (inspect.getdoc(inspect.getattr_static(module, member)) or "").split()
                if len(words) > 5:
                    texts.setdefault(" ".join(words[:24]), label)
    chosen = np.random.default_rng(seed).permutation(len(texts))[:count]
    items = list(texts.items())
    return [items[i][0] for i in chosen], [items[i][1] for i in chosen]
