"""The inner loops of the pattern engine, compiled by numba where it is installed.

Only this package knows numba, and it is imported only by code that is about to run a kernel. Everything is written in
the part of Python that numba compiles, so that without it (or with ``PLANNER_NO_JIT`` set) the same functions run as they
are: far slower, with the same results, which is how the tests check what the compiler made of them.
"""
