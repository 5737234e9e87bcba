//! Roles: what a user may do, in general and on single clusters.

use std::collections::BTreeMap;
use std::fmt;

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

use crate::store::GatewayEntry;

/// A role. Each role includes the rights of the roles before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Sees nothing.
    None,
    /// Sees everything, and makes calls that only read.
    Viewer,
    /// Makes all calls, and acts on queues, dead letters and pipelines.
    Operator,
    /// Changes the registration. As the general role: manages users and reads the audit log, too.
    Admin,
}

/// A user's roles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Roles {
    /// The general role: for the console itself, and for each cluster that is not in `clusters`.
    pub(crate) role: Role,
    /// Other roles, by the cluster's id.
    #[serde(default)]
    pub(crate) clusters: BTreeMap<String, Role>,
}

impl Role {
    const ALL: [Self; 4] = [Self::None, Self::Viewer, Self::Operator, Self::Admin];

    const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

impl ToSql for Role {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.word().into())
    }
}

impl FromSql for Role {
    /// Reads a role. A word that is not a role is an error, so that it gives no rights.
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let word = value.as_str()?;
        let found = Self::ALL.into_iter().find(|role| role.word() == word);
        found.ok_or_else(|| FromSqlError::Other(format!("`{word}` is not a role").into()))
    }
}

impl Roles {
    /// Returns the role on a cluster.
    pub(crate) fn on_cluster(&self, id: &str) -> Role {
        self.clusters.get(id).copied().unwrap_or(self.role)
    }

    /// Returns the role on a gateway: the lowest of the roles on its clusters. A call that acts on a gateway
    /// acts on all of them, and its queues show the documents of all of them.
    pub(crate) fn on_gateway(&self, gateway: &GatewayEntry) -> Role {
        let linked = gateway.clusters.iter().map(|link| match &link.cluster_id {
            Some(id) => self.on_cluster(id),
            // Roles on single clusters go with the cluster, so nobody knows any more for whom it was hidden.
            None if self.role == Role::Admin => Role::Admin,
            None => Role::None,
        });
        linked.min().unwrap_or(self.role)
    }

    /// Returns whether nothing is hidden from the user.
    pub(crate) fn see_all(&self) -> bool {
        self.role >= Role::Viewer && self.clusters.values().all(|role| *role >= Role::Viewer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::GatewayCluster;

    #[test]
    fn a_clusters_role_counts_before_the_one_for_everything_and_a_gateway_has_its_clusters_lowest() {
        let roles = Roles {
            role: Role::Viewer,
            clusters: [("a", Role::Operator), ("b", Role::Admin), ("c", Role::None)]
                .map(|(id, role)| (id.to_owned(), role))
                .into(),
        };
        assert_eq!(
            (roles.on_cluster("a"), roles.on_cluster("x")),
            (Role::Operator, Role::Viewer)
        );
        let gateway = |ids: &[Option<&str>]| GatewayEntry {
            clusters: ids
                .iter()
                .map(|id| GatewayCluster {
                    name: String::new(),
                    cluster_id: id.map(str::to_owned),
                })
                .collect(),
            ..GatewayEntry::default()
        };
        assert_eq!(roles.on_gateway(&gateway(&[])), Role::Viewer);
        assert_eq!(
            roles.on_gateway(&gateway(&[Some("a"), Some("b")])),
            Role::Operator
        );
        let removed = gateway(&[Some("a"), None]);
        assert_eq!(roles.on_gateway(&removed), Role::None, "one that was removed");
        let admin = Roles {
            role: Role::Admin,
            ..roles.clone()
        };
        assert_eq!(admin.on_gateway(&removed), Role::Operator);
        assert_eq!(roles.on_gateway(&gateway(&[Some("a"), Some("c")])), Role::None);
        assert!(!roles.see_all());
        assert!(Role::None < Role::Viewer && Role::Viewer < Role::Operator && Role::Operator < Role::Admin);
    }
}
