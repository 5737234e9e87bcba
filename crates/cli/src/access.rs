//! How the command line says to reach a cluster: its address, the gateway's account, and whom to trust.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use config::{Credentials, Secret};

/// The gateway's own account, and certificates.
#[derive(clap::Args)]
pub(crate) struct Access {
    /// User name of the gateway's own account at the cluster; or set TIDEGATE_USER
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// File with the password of --user; or set TIDEGATE_PASSWORD
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// PEM file of the certificate authorities to trust, in place of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,
    /// Accept any TLS certificate; for tests only
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl Access {
    /// Whether the command line gives any of these options.
    pub(crate) fn is_given(&self) -> bool {
        self.user.is_some() || self.password_file.is_some() || self.ca.is_some() || self.insecure
    }

    /// The account, from the arguments or the environment.
    pub(crate) fn account(&self) -> anyhow::Result<Option<Credentials>> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(username) = self.user.clone().or_else(|| variable("TIDEGATE_USER")) else {
            return match self.password_file {
                Some(_) => bail!("--password-file needs --user, or TIDEGATE_USER"),
                None => Ok(None),
            };
        };
        let password = match &self.password_file {
            Some(file) => std::fs::read_to_string(file)
                .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|error| anyhow!("--password-file: {}: {error}", file.display()))?,
            None => variable("TIDEGATE_PASSWORD")
                .context("--user (or TIDEGATE_USER) needs --password-file, or TIDEGATE_PASSWORD")?,
        };
        Ok(Some(Credentials::Basic {
            username,
            password: Secret::new(password),
        }))
    }
}
