# The C types of commit.py, for the compiled build.
cimport cython

from penstock.log.partition cimport Partition, Round


cdef long ROUND_WAITING_ENOUGH
cdef long long ROUND_BYTES_ENOUGH


cdef class GroupCommit:
    cdef object _positions
    cdef object _job
    cdef object _run
    cdef object _defer
    cdef object _sync
    cdef dict _dirty
    cdef list _metadata
    cdef dict _changed_journals
    cdef list _journals
    cdef set _moved_starts
    cdef list _waiting
    cdef dict _unrecorded
    cdef bint _gathering
    cdef long _waited_before
    cdef long long _bytes
    cdef bint _running
    cdef list _rounds
    cdef bint _together
    cdef bint _settles
    cdef object _shared
    cdef object _round_journal
    cdef dict _unsettled
    cdef set _leaving
    cdef list _answered
    cdef list _forgotten
    cdef public object metadata_failed
    cdef public object on_everything_failed

    cpdef appended(self, Partition partition, long long size=*)
    cpdef after(self, callback)
    cdef _request(self)
    @cython.locals(waiting=long, enough=bint)
    cpdef gather(self)
    @cython.locals(rounds=list, files=list, only_syncs=bint, most=long, partition=Partition, round_=Round)
    cdef _start(self)
    @cython.locals(plain=list, few=list, round_=Round)
    cdef _share_journal(self, list files)
    @cython.locals(rounds=list, answered=list, forgotten=list, partition=Partition, round_=Round)
    cpdef _finish(self, outcome)


cdef _position(Partition partition, long long end)
