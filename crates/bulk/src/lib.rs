//! The bulk format, sans-I/O: bytes of a _bulk body to a plan by node, node replies back to one reply.
