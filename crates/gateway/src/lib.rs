//! The product: configuration, entry, router, flow of filters, synchronous ingest, proxy, admin, metrics.

pub mod config;
pub mod router;
pub mod when;
