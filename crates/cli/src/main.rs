//! The one binary, `tidegate`: one file per subcommand.

fn main() {}
