//! `entry`: listeners.

use std::time::Duration;

use super::{Bytes, Ignored, TimeOrSeconds, section};

section! {
    /// A listener.
    #[schemars(extend("required" = ["name", "router", "network"]))]
    EntryFile {
        /// Name of the entry.
        name: String = String::new(),
        /// Open this entry.
        enabled: bool = true,
        /// Name of the router for the requests of this entry.
        router: String = String::new(),
        /// Address to listen on.
        network: EntryNetworkFile = EntryNetworkFile::default(),
        /// TLS towards clients.
        tls: EntryTlsFile = EntryTlsFile::default(),
        /// Largest number of connections. When a new connection exceeds it, the gateway closes one that has
        /// waited long for its client, or the new one if all others have requests under way.
        #[schemars(range(min = 1, max = 10_000_000))]
        max_concurrency: u32 = 20_000,
        /// Largest body, after decompression. Larger ones get 413. The cluster's own limit
        /// (`http.max_content_length`) applies as well.
        max_request_body_size: Bytes = Bytes(100 << 20),
        /// Largest size of request line and headers together. Larger ones get 431.
        max_request_head_size: Bytes = Bytes(64 << 10),
        /// Largest number of headers in a request. More get 431.
        #[schemars(range(min = 8, max = 4096))]
        max_request_headers: u32 = 128,
        /// Longest wait for more of a body.
        read_timeout: TimeOrSeconds = TimeOrSeconds(Duration::from_secs(30)),
        /// Longest wait for a client to take more of a reply.
        write_timeout: TimeOrSeconds = TimeOrSeconds(Duration::from_secs(30)),
        /// Longest life of a connection without a request.
        idle_timeout: TimeOrSeconds = TimeOrSeconds(Duration::from_secs(120)),
        /// Longest wait for a request's whole head.
        header_timeout: TimeOrSeconds = TimeOrSeconds(Duration::from_secs(10)),
        /// Lowest rate of a client, in bytes per second: in each `read_timeout` of waiting for its body
        /// (slower clients get 408), and in each `write_timeout` of waiting for it to take a reply (slower
        /// clients are cut off). `0`: no limit.
        min_body_rate: Bytes = Bytes(1 << 10),
        /// Keep-alive probes.
        #[schemars(extend("x-ignored" = "TCP keep-alive is always on; idle connections are closed by `idle_timeout`"))]
        tcp_keepalive: Ignored = Ignored,
        /// Keep-alive probes.
        #[schemars(extend("x-ignored" = "TCP keep-alive is always on; idle connections are closed by `idle_timeout`"))]
        tcp_keepalive_in_seconds: Ignored = Ignored,
        /// Read buffers.
        #[schemars(extend("x-ignored" = "buffers are sized from the request; the head's limit is `max_request_head_size`"))]
        read_buffer_size: Ignored = Ignored,
        /// Write buffers.
        #[schemars(extend("x-ignored" = "replies are written in chunks of a fixed size"))]
        write_buffer_size: Ignored = Ignored,
        /// Memory.
        #[schemars(extend("x-ignored" = "memory for bodies is bounded by `worker.body_memory`"))]
        max_inflight_request_size: Ignored = Ignored,
        /// Memory.
        #[schemars(extend("x-ignored" = "idle connections hold no buffers anyway"))]
        reduce_memory_usage: Ignored = Ignored,
        /// Overload.
        #[schemars(extend("x-ignored" = "a connection beyond `max_concurrency` is let in at once, in the place of one that waits"))]
        sleep_when_concurrency_limits_exceeded: Ignored = Ignored,
        /// Stop.
        #[schemars(extend("x-ignored" = "a stop always drains, for `worker.drain_timeout` at most"))]
        dirty_shutdown: Ignored = Ignored,
    }
}

section! {
    /// Address that an entry listens on.
    #[schemars(extend("required" = ["binding"]))]
    EntryNetworkFile {
        /// Address and port, as in `0.0.0.0:8000` or `[::]:8000`. `:8000` means every address.
        binding: String = String::new(),
        /// Try the next ports when the port is taken.
        skip_occupied_port: bool = false,
        /// Share the port with other processes (`SO_REUSEPORT`).
        reuse_port: bool = false,
    }
}

section! {
    /// TLS towards clients.
    EntryTlsFile {
        /// Use TLS. Without `cert_file` and `key_file`, the gateway makes a self-signed certificate at each
        /// start.
        enabled: bool = false,
        /// PEM file of the certificate chain, leaf first.
        cert_file: Option<String> = None,
        /// PEM file of the private key.
        key_file: Option<String> = None,
        /// PEM file of certificate authorities. Every client must show a certificate of one of them.
        client_ca_file: Option<String> = None,
        /// Use changed certificate files for new connections, without a restart.
        hot_reload: bool = true,
        /// Check of certificates.
        #[schemars(extend("x-ignored" = "clients' certificates are asked for with `client_ca_file`, and then always checked"))]
        skip_insecure_verify: Ignored = Ignored,
        /// Protocol version.
        #[schemars(extend("x-ignored" = "TLS 1.2 and 1.3 are spoken"))]
        min_version: Ignored = Ignored,
    }
}
