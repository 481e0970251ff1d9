# The C types of threads.py, for the compiled build.
from penstock.server.turn cimport Turn


cdef class SyncThread:
    cdef object _loop
    cdef Turn _turn
    cdef object _jobs
    cdef object _worker
    cdef object _syncing
    cdef object _thread

    cpdef sync(self, files, bint together, done)
