"""Compiles the hot modules with Cython where a C compiler is found.

The modules are ordinary Python files that run as they are; the .pxd files beside them say what C needs
to know. PENSTOCK_PURE=1 installs them uncompiled, and so does a machine without a compiler: every
extension is optional, and each needs the others compiled too.
"""

import os

from setuptools import Extension, setup

COMPILED = (
    "penstock.broker.appending",
    "penstock.broker.broker",
    "penstock.broker.producers",
    "penstock.broker.topic",
    "penstock.clock",
    "penstock.files",
    "penstock.kafka.call",
    "penstock.kafka.dispatcher",
    "penstock.kafka.fetch",
    "penstock.kafka.produce",
    "penstock.kafka.throttling",
    "penstock.log.commit",
    "penstock.log.index",
    "penstock.log.offset_map",
    "penstock.log.partition",
    "penstock.log.reading",
    "penstock.log.segment",
    "penstock.log.space",
    "penstock.record.batch",
    "penstock.record.columns",
    "penstock.record.decode",
    "penstock.record.murmur2",
    "penstock.record.spans",
    "penstock.server.connection",
    "penstock.server.framing",
    "penstock.server.outbox",
    "penstock.server.sync_worker",
    "penstock.server.threads",
    "penstock.server.turn",
    "penstock.wire.requests",
    "penstock.wire.writer",
)


def extensions() -> list[Extension]:
    """The optional extension modules, or none when a pure install was asked for."""
    if os.environ.get("PENSTOCK_PURE"):
        return []
    from Cython.Build import cythonize  # noqa: PLC0415  (absent when installing pure)

    return cythonize(
        [
            Extension(
                name,
                [f"src/{name.replace('.', '/')}.py"],
                optional=True,
                # Python itself may have been built with -O3 -g: no faster here, and twice as long.
                extra_compile_args=["-O2", "-g0"],
            )
            for name in COMPILED
        ],
        compiler_directives={
            "language_level": "3",
            # Bounds checks stay on: these modules read bytes from the wire.
            "boundscheck": True,
            "binding": True,
            # Python's annotations stay Python's; what C needs to know stands in the .pxd files.
            "annotation_typing": False,
        },
        build_dir="build/cython",
        quiet=True,
    )


setup(ext_modules=extensions(), options={"build_ext": {"parallel": os.cpu_count()}})
