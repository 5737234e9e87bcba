//! For development only: a fake cluster that answers as fast as a real one should, the driver of load, sample
//! bodies, and the driver of real clusters.

pub mod broker;
pub mod client;
pub mod driver;
pub mod load;
pub mod nginx;
pub mod pin;
pub mod real;

pub use sink as fake;
