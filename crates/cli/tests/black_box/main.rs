//! The binary before a fake cluster that misbehaves on cue: what clients get on each failure path, and what the nodes
//! were sent. Each test has a gateway and a cluster of its own.

mod admin;
mod failures;
mod gateway;
mod hardening;
mod passing;
mod splitting;
