//! Dev tasks: `cargo xtask ci | test | demo | bench | tidy | fuzz`.

fn main() {}
