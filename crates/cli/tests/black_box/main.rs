//! The binary before a fake cluster that misbehaves on cue: what clients get on each failure path, and what
//! the nodes were sent. Each test has a gateway and a cluster of its own.

#![allow(clippy::unwrap_used, reason = "a test that meets something unexpected ends")]

mod admin;
mod behind_the_queue;
mod capacity;
mod chart;
mod choosing;
mod combine;
mod command_line;
mod compare;
mod console;
mod dead_letters;
mod delivery;
mod diff;
mod directed;
mod docs;
mod early;
mod explain;
mod failures;
mod formats;
mod forms;
mod full_disk;
mod full_letters;
mod gateway;
#[path = "../guides/mod.rs"]
mod guide_files;
mod guides;
mod hardening;
mod health;
mod health_command;
mod idempotency;
mod init;
mod install;
mod loadgen;
mod logs;
mod memory;
mod neighbours;
mod nodes;
mod online;
mod operate;
mod ops;
mod order;
mod packed;
mod panics;
mod parked;
mod passing;
mod place;
mod queue;
mod quotes;
mod raw_node;
mod reload;
mod replies;
mod requeue;
mod rights;
mod routing;
mod service;
mod single;
mod sink;
mod splitting;
mod standstill;
mod switches;
mod terminal;
mod threads;
mod tls;
mod whole;
