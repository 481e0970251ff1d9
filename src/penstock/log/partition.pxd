# The C types of partition.py, for the compiled build.
cimport cython

from penstock.log.segment cimport Segment
from penstock.record.batch cimport BatchHeader


cdef long long RELATIVE_OFFSET_MAX
cdef long long LENGTH_OVERHEAD
cdef long long CONTROL_FLAG
cdef long long NO_TIMESTAMP
cdef long long _POINTS_KEPT


cdef class DurablePoint:
    cdef public long long offset
    cdef public Segment segment
    cdef public long long position
    cdef public long long max_timestamp
    cdef public long long max_timestamp_offset


cdef class Round:
    cdef public Partition partition
    cdef public DurablePoint point
    cdef public list files
    cdef public object folder
    cdef public list checkpoints
    cdef public bint needs_room
    cdef public long long kept_to
    cdef public bint is_journaled


cdef class Partition:
    cdef public object identity
    cdef public object topic
    cdef public object folder
    cdef public object observer
    cdef public list segments
    cdef public int epoch
    cdef public long long start_offset
    cdef public set watchers
    cdef public object offline
    cdef public object memory
    cdef public long long settled_offset
    cdef object _settings
    cdef public bint synced
    cdef public long long durable_offset
    cdef long long _segment_bytes
    cdef long long _segment_ms
    cdef object _files
    cdef list _base_offsets
    cdef list _sealed
    cdef bint _folder_dirty
    cdef Segment _active
    cdef DurablePoint _durable
    cdef DurablePoint _kept
    cdef list _recent_points

    @cython.locals(active=Segment, base_offset=cython.longlong)
    cpdef long long append(self, BatchHeader header, data) except? -1
    cdef bint _must_roll(self, Segment active, BatchHeader header)
    cdef bint _checkpoint_due(self)
    cdef DurablePoint _point(self)
    cpdef Round begin_round(self)
    @cython.locals(room_end=cython.longlong)
    cdef bint _asked_for_room(self)
    @cython.locals(active=Segment, piece=cython.longlong, ahead=cython.longlong, room_end=cython.longlong)
    cdef long long _next_room_end(self)
    @cython.locals(rolled=bint)
    cpdef finish_round(self, Round round_, written)
    @cython.locals(old=DurablePoint, same=bint, added=cython.longlong)
    cdef _advance(self, DurablePoint point)
    @cython.locals(point=DurablePoint)
    cpdef DurablePoint commit_point(self, long long offset)
    cpdef long long readable_bytes(self, Segment segment)
