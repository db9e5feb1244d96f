"""``python -m solvers.kernels`` compiles all kernels, once for each version of them; needs numba and about a minute."""

import importlib

from solvers.kernels import cache

for source in cache.kernels():
    importlib.import_module(f"solvers.kernels.{source.stem}")
if importlib.import_module("solvers.kernels.jit").COMPILED:
    cache.done()
raise SystemExit(
    0 if cache.ready() else "the kernels are not compiled: numba or a cache folder to write to is missing"
)
