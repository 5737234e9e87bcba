//! Files that people write, read so that a mistake is told with its line, its column and what to write
//! instead.
//!
//! [`yaml`] turns text into a tree that remembers where everything stood; [`tree`] nests dotted keys and puts
//! in the environment; [`problem`] collects what is wrong; a [`Secret`] never prints. What the keys mean is
//! the business of whoever reads the tree.
//!
//! ```
//! use settings::problem::Problems;
//! use settings::{tree, yaml};
//!
//! let mut problems = Problems::new(Some("load.yml".to_owned()));
//! let mut root = yaml::parse("env: {HOST: es1}\nurl: http://$[[env.HSOT]]:9200\n", &mut problems).expect("it is YAML");
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
