# The C types of requests.py, for the compiled build.
cimport cython


cdef dict _topics_by_name
cdef dict _topics_by_id


cdef class TopicKey:
    cdef public str name
    cdef public object id
    cdef public Py_hash_t hash


cdef class PartitionKey:
    cdef public TopicKey topic
    cdef public long long partition


cdef class ProduceRequest:
    cdef public long long acks
    cdef public list topics


cdef class FetchPartition:
    cdef public long long offset
    cdef public long long max_bytes
    cdef public long long leader_epoch
    cdef public long long told_high_watermark
    cdef public long long told_start_offset


cdef class FetchRequest:
    cdef public long long max_wait_ms
    cdef public long long min_bytes
    cdef public long long max_bytes
    cdef public bint committed_only
    cdef public long long session_id
    cdef public long long session_epoch
    cdef public dict partitions
    cdef public list forgotten


cdef class OffsetCommit:
    cdef public long long number
    cdef public long long offset
    cdef public long long leader_epoch
    cdef public object metadata


cdef class OffsetCommitRequest:
    cdef public str group
    cdef public long long generation
    cdef public str member
    cdef public object instance
    cdef public list topics


@cython.final
cdef class _Reader:
    cdef object buffer
    cdef const unsigned char* data
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef bint flexible

    cdef bint need(self, Py_ssize_t size) except -1
    cdef long long int8(self) except *
    cdef long long int16(self) except *
    cdef long long int32(self) except *
    cdef long long int64(self) except *
    @cython.locals(value=Py_ssize_t, part=Py_ssize_t, shift=int)
    cdef Py_ssize_t varint(self) except -1
    @cython.locals(start=Py_ssize_t)
    cdef Py_ssize_t skip(self, Py_ssize_t size) except -1
    @cython.locals(start=Py_ssize_t)
    cdef object take(self, Py_ssize_t size)
    @cython.locals(start=Py_ssize_t)
    cdef bytes copy(self, Py_ssize_t size)
    @cython.locals(size=Py_ssize_t)
    cdef object nullable_bytes(self)
    cdef Py_ssize_t string_bytes(self) except? -1
    @cython.locals(size=Py_ssize_t)
    cdef object nullable_string(self)
    cdef str string(self)
    @cython.locals(size=Py_ssize_t, raw=bytes)
    cdef TopicKey topic(self, bint by_id)
    @cython.locals(count=Py_ssize_t)
    cdef Py_ssize_t count(self) except -1
    cdef object skip_tags(self)


cpdef Py_ssize_t skip_header_tags(object frame, Py_ssize_t position) except -1

cdef TopicKey _topic_key(bytes data, bint by_id)

@cython.locals(reader=_Reader, by_id=bint, request=ProduceRequest, partitions=list)
cpdef ProduceRequest parse_produce(object frame, int version, Py_ssize_t position=*)

@cython.locals(reader=_Reader, by_id=bint, request=FetchRequest)
cpdef FetchRequest parse_fetch(object frame, int version, Py_ssize_t position=*)

@cython.locals(wanted=FetchPartition)
cdef FetchPartition _fetch_partition(_Reader reader, int version)

@cython.locals(reader=_Reader, by_id=bint, request=OffsetCommitRequest, commits=list,
               number="long long", offset="long long", leader_epoch="long long", group=str,
               generation="long long")
cpdef OffsetCommitRequest parse_offset_commit(object frame, int version, Py_ssize_t position=*)
