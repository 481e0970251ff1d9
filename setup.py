"""Compiles the hot modules with Cython where a C compiler is found.

The modules are ordinary Python files that run as they are. PENSTOCK_PURE=1 installs them uncompiled,
and so does a machine without a compiler: every extension is optional.
"""

import os

from setuptools import Extension, setup

COMPILED = (
    "penstock.record.batch",
    "penstock.record.decode",
    "penstock.server.sync_worker",
    "penstock.wire.requests",
)


def extensions() -> list[Extension]:
    """The optional extension modules, or none when a pure install was asked for."""
    if os.environ.get("PENSTOCK_PURE"):
        return []
    from Cython.Build import cythonize  # noqa: PLC0415  (absent when installing pure)

    return cythonize(
        [Extension(name, [f"src/{name.replace('.', '/')}.py"], optional=True) for name in COMPILED],
        # Bounds checks stay on: these modules read bytes from the wire.
        compiler_directives={"language_level": "3", "boundscheck": True, "binding": True},
        build_dir="build/cython",
        quiet=True,
    )


setup(ext_modules=extensions())
