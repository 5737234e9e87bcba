//! What a cluster looks like now: discovery, state, health, flavour and version, watch.
