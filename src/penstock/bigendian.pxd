# Reads and writes the numbers of Kafka's formats, for the compiled build; plain Python uses struct.
# The caller has checked that the bytes are there.
from libc.string cimport memcpy

cdef extern from *:
    """
    static inline unsigned long long penstock_swap64(unsigned long long x) {
        return __builtin_bswap64(x);
    }
    static inline unsigned int penstock_swap32(unsigned int x) { return __builtin_bswap32(x); }
    static inline unsigned short penstock_swap16(unsigned short x) { return __builtin_bswap16(x); }
    """
    unsigned long long penstock_swap64(unsigned long long) noexcept nogil
    unsigned int penstock_swap32(unsigned int) noexcept nogil
    unsigned short penstock_swap16(unsigned short) noexcept nogil


cdef inline long long load_int64(const unsigned char* at) noexcept nogil:
    cdef unsigned long long value
    memcpy(&value, at, 8)
    return <long long>penstock_swap64(value)


cdef inline unsigned int load_uint32(const unsigned char* at) noexcept nogil:
    cdef unsigned int value
    memcpy(&value, at, 4)
    return penstock_swap32(value)


cdef inline int load_int32(const unsigned char* at) noexcept nogil:
    return <int>load_uint32(at)


cdef inline short load_int16(const unsigned char* at) noexcept nogil:
    cdef unsigned short value
    memcpy(&value, at, 2)
    return <short>penstock_swap16(value)


cdef inline void store_int64(unsigned char* at, long long number) noexcept nogil:
    cdef unsigned long long value = penstock_swap64(<unsigned long long>number)
    memcpy(at, &value, 8)


cdef inline void store_int32(unsigned char* at, int number) noexcept nogil:
    cdef unsigned int value = penstock_swap32(<unsigned int>number)
    memcpy(at, &value, 4)


cdef inline void store_int16(unsigned char* at, short number) noexcept nogil:
    cdef unsigned short value = penstock_swap16(<unsigned short>number)
    memcpy(at, &value, 2)
