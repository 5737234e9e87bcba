//! Configuration files that people write, read so that each mistake is reported with its line, its column and
//! a correction.
//!
//! [`yaml`] parses text into a tree that remembers the place of every value; [`tree`] nests dotted keys and
//! substitutes environment variables; [`problem`] collects the problems of a file; a [`Secret`] never prints.
//! The meaning of the keys is left to the code that reads the tree.
//!
//! ```
//! use settings::problem::Problems;
//! use settings::{tree, yaml};
//!
//! let mut problems = Problems::new(Some("load.yml".to_owned()));
//! let text = "env: {HOST: es1}\nurl: http://$[[env.HSOT]]:9200\n";
//! let mut root = yaml::parse(text, &mut problems).expect("it is YAML");
//! tree::substitute(&mut root, &|_| None, tree::Unknown::Refused, &mut problems);
//! assert_eq!(
//!     problems.into_sorted()[0].to_string(),
//!     "load.yml:2:6: error: neither the environment nor `env:` has `HSOT`; did you mean `HOST`?"
//! );
//! ```

pub mod problem;
mod secret;
pub mod tree;
pub mod yaml;

pub use problem::{Position, Problem, Rejected, Severity};
pub use secret::{MASK, Secret};
pub use tree::Environment;
