//! The product: configuration, entry, router, flow of filters, synchronous ingest, proxy, admin, metrics.
