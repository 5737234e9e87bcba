//! Sockets: a runtime per core, listeners, TLS, HTTP/1.1 in and out, pools, body buffers, codecs, drain.
