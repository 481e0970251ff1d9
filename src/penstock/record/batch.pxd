# The C types of batch.py, for the compiled build.
cdef class BatchHeader:
    cdef public long long base_offset
    cdef public long long length
    cdef public long long leader_epoch
    cdef public long long magic
    cdef public long long checksum
    cdef public long long attributes
    cdef public long long last_offset_delta
    cdef public long long base_timestamp
    cdef public long long max_timestamp
    cdef public long long producer_id
    cdef public long long producer_epoch
    cdef public long long base_sequence
    cdef public long long record_count


cpdef BatchHeader parse(object buffer, Py_ssize_t position=*)
cpdef BatchHeader checked(object buffer, Py_ssize_t position=*)
cpdef patch(object buffer, Py_ssize_t position, long long base_offset, int epoch)
