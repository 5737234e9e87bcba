//! The registry: clusters and gateways, with their secrets sealed.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;
use settings::Secret;

use super::{Store, StoreError, taken};

/// A registered cluster as the API shows it, without its password.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct ClusterEntry {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) endpoints: Vec<String>,
    pub(crate) username: Option<String>,
    pub(crate) has_password: bool,
    pub(crate) ca_pem: Option<String>,
    pub(crate) verify: bool,
    pub(crate) colour: Option<String>,
    pub(crate) read_only: bool,
    pub(crate) protected: bool,
    pub(crate) from_gateway: Option<String>,
    #[serde(skip)]
    pub(crate) sealed: Option<Vec<u8>>,
}

/// A registered gateway as the API shows it, without its secrets.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct GatewayEntry {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) has_token: bool,
    pub(crate) ca_pem: Option<String>,
    /// Whether a certificate of the console's own is shown to the gateway.
    pub(crate) has_client_pem: bool,
    pub(crate) verify: bool,
    pub(crate) clusters: Vec<GatewayCluster>,
    #[serde(skip)]
    pub(crate) sealed: Option<Vec<u8>>,
    #[serde(skip)]
    pub(crate) sealed_client_pem: Option<Vec<u8>>,
}

/// A cluster under its name in a gateway's configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct GatewayCluster {
    pub(crate) name: String,
    /// The id of the registered cluster; none if it was removed. Of several with a common address, each has
    /// an entry of its own.
    pub(crate) cluster_id: Option<String>,
}

impl Store {
    /// Returns all clusters, by name.
    pub(crate) fn clusters(&self) -> Result<Vec<ClusterEntry>, StoreError> {
        let sql = self.sql();
        let mut statement = sql.prepare(&format!("{SELECT_CLUSTER} ORDER BY name"))?;
        let rows = statement.query_map([], cluster_of)?;
        rows.map(|row| row?).collect()
    }

    /// Returns one cluster.
    pub(crate) fn cluster(&self, id: &str) -> Result<Option<ClusterEntry>, StoreError> {
        let sql = self.sql();
        let found = sql.query_row(&format!("{SELECT_CLUSTER} WHERE id = ?"), [id], cluster_of);
        found.optional()?.transpose()
    }

    /// Returns all gateways, by name.
    pub(crate) fn gateways(&self) -> Result<Vec<GatewayEntry>, StoreError> {
        let sql = self.sql();
        let mut statement = sql.prepare(&format!("{SELECT_GATEWAY} ORDER BY name"))?;
        let rows: Vec<GatewayEntry> = statement.query_map([], gateway_of)?.collect::<Result<_, _>>()?;
        rows.into_iter()
            .map(|gateway| with_clusters(&sql, gateway))
            .collect()
    }

    /// Returns one gateway.
    pub(crate) fn gateway(&self, id: &str) -> Result<Option<GatewayEntry>, StoreError> {
        let sql = self.sql();
        let found = sql.query_row(&format!("{SELECT_GATEWAY} WHERE id = ?"), [id], gateway_of);
        found
            .optional()?
            .map(|gateway| with_clusters(&sql, gateway))
            .transpose()
    }

    /// Stores a cluster, new or changed. With `secret` `None`, the stored password stays.
    pub(crate) fn keep_cluster(
        &self,
        entry: &ClusterEntry,
        secret: Option<Option<&Secret>>,
    ) -> Result<(), StoreError> {
        let sealed = match secret {
            None => entry.sealed.clone(),
            Some(None) => None,
            Some(Some(secret)) => Some(self.vault.seal(&owner("cluster", &entry.id), secret)?),
        };
        let kept = self.sql().execute(
            "INSERT INTO clusters (id, name, endpoints, username, secret, ca_pem, verify, colour, read_only, protected,
                from_gateway) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, endpoints = excluded.endpoints,
                username = excluded.username, secret = excluded.secret, ca_pem = excluded.ca_pem,
                verify = excluded.verify, colour = excluded.colour, read_only = excluded.read_only,
                protected = excluded.protected",
            params![
                entry.id,
                entry.name,
                serde_json::to_string(&entry.endpoints)?,
                entry.username,
                sealed,
                entry.ca_pem,
                entry.verify,
                entry.colour,
                entry.read_only,
                entry.protected,
                entry.from_gateway
            ],
        );
        taken(kept, &entry.name)
    }

    /// Stores a gateway in the same way: its token, and the certificate and key to show to it.
    pub(crate) fn keep_gateway(
        &self,
        entry: &GatewayEntry,
        token: Option<Option<&Secret>>,
        client_pem: Option<Option<&Secret>>,
    ) -> Result<(), StoreError> {
        let sealed = |kind, given: Option<Option<&Secret>>, stored: &Option<Vec<u8>>| match given {
            None => Ok(stored.clone()),
            Some(given) => {
                let seal = |secret| self.vault.seal(&owner(kind, &entry.id), secret);
                given.map(seal).transpose()
            }
        };
        let sealed_token = sealed(GATEWAY_TOKEN, token, &entry.sealed)?;
        let sealed_client_pem = sealed(GATEWAY_CLIENT_PEM, client_pem, &entry.sealed_client_pem)?;
        let kept = self.sql().execute(
            "INSERT INTO gateways (id, name, url, secret, ca_pem, client_pem, verify) VALUES (?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, url = excluded.url, secret = excluded.secret,
                ca_pem = excluded.ca_pem, client_pem = excluded.client_pem, verify = excluded.verify",
            params![
                entry.id,
                entry.name,
                entry.url,
                sealed_token,
                entry.ca_pem,
                sealed_client_pem,
                entry.verify
            ],
        );
        taken(kept, &entry.name)
    }

    /// Removes a cluster and its password. Gateways that deliver to it remember that it was registered,
    /// unless another registered cluster stands for it.
    pub(crate) fn forget_cluster(&self, id: &str) -> Result<(), StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        transaction.execute(
            "DELETE FROM links WHERE cluster = ?1 AND EXISTS (SELECT 1 FROM links AS others
                 WHERE others.gateway = links.gateway AND others.name = links.name AND others.cluster != ?1)",
            [id],
        )?;
        let forgotten = transaction.execute("DELETE FROM clusters WHERE id = ?", [id])?;
        transaction.commit()?;
        (forgotten > 0).then_some(()).ok_or(StoreError::Missing)
    }

    /// Removes a gateway and its token. The clusters that it brought along stay.
    pub(crate) fn forget_gateway(&self, id: &str) -> Result<(), StoreError> {
        let forgotten = self.sql().execute("DELETE FROM gateways WHERE id = ?", [id])?;
        (forgotten > 0).then_some(()).ok_or(StoreError::Missing)
    }

    /// Records that a registered cluster is one that a gateway knows by this name.
    pub(crate) fn link(&self, gateway: &str, name: &str, cluster: &str) -> Result<(), StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        transaction.execute(
            "DELETE FROM links WHERE gateway = ? AND name = ? AND cluster IS NULL",
            params![gateway, name],
        )?;
        transaction.execute(
            "INSERT OR IGNORE INTO links (gateway, name, cluster) VALUES (?, ?, ?)",
            params![gateway, name, cluster],
        )?;
        Ok(transaction.commit()?)
    }

    /// Returns a cluster's password.
    pub(crate) fn cluster_secret(&self, entry: &ClusterEntry) -> Result<Option<Secret>, StoreError> {
        let sealed = entry.sealed.as_deref();
        let opened = sealed.map(|sealed| self.vault.unseal(&owner("cluster", &entry.id), sealed));
        Ok(opened.transpose()?)
    }

    /// Returns a gateway's token.
    pub(crate) fn gateway_token(&self, entry: &GatewayEntry) -> Result<Option<Secret>, StoreError> {
        let sealed = entry.sealed.as_deref();
        let opened = sealed.map(|sealed| self.vault.unseal(&owner(GATEWAY_TOKEN, &entry.id), sealed));
        Ok(opened.transpose()?)
    }

    /// Returns the certificate and the key to show to a gateway.
    pub(crate) fn gateway_client_pem(&self, entry: &GatewayEntry) -> Result<Option<Secret>, StoreError> {
        let sealed = entry.sealed_client_pem.as_deref();
        let opened = sealed.map(|sealed| self.vault.unseal(&owner(GATEWAY_CLIENT_PEM, &entry.id), sealed));
        Ok(opened.transpose()?)
    }
}

/// Kinds of owners of sealed secrets.
const GATEWAY_TOKEN: &str = "gateway";
const GATEWAY_CLIENT_PEM: &str = "gateway/client_pem";

fn owner(kind: &str, id: &str) -> String {
    format!("{kind}/{id}")
}

const SELECT_CLUSTER: &str =
    "SELECT id, name, endpoints, username, secret, ca_pem, verify, colour, read_only, protected,
    from_gateway FROM clusters";
const SELECT_GATEWAY: &str = "SELECT id, name, url, secret, ca_pem, verify, client_pem FROM gateways";

fn cluster_of(row: &Row<'_>) -> rusqlite::Result<Result<ClusterEntry, StoreError>> {
    let endpoints: String = row.get(2)?;
    let sealed: Option<Vec<u8>> = row.get(4)?;
    let entry = ClusterEntry {
        id: row.get(0)?,
        name: row.get(1)?,
        endpoints: Vec::new(),
        username: row.get(3)?,
        has_password: sealed.is_some(),
        ca_pem: row.get(5)?,
        verify: row.get(6)?,
        colour: row.get(7)?,
        read_only: row.get(8)?,
        protected: row.get(9)?,
        from_gateway: row.get(10)?,
        sealed,
    };
    let read = serde_json::from_str(&endpoints).map_err(StoreError::from);
    Ok(read.map(|endpoints| ClusterEntry { endpoints, ..entry }))
}

fn gateway_of(row: &Row<'_>) -> rusqlite::Result<GatewayEntry> {
    let (sealed, sealed_client_pem): (Option<Vec<u8>>, Option<Vec<u8>>) = (row.get(3)?, row.get(6)?);
    Ok(GatewayEntry {
        id: row.get(0)?,
        name: row.get(1)?,
        url: row.get(2)?,
        has_token: sealed.is_some(),
        ca_pem: row.get(4)?,
        has_client_pem: sealed_client_pem.is_some(),
        verify: row.get(5)?,
        clusters: Vec::new(),
        sealed,
        sealed_client_pem,
    })
}

fn with_clusters(sql: &Connection, gateway: GatewayEntry) -> Result<GatewayEntry, StoreError> {
    let mut statement =
        sql.prepare("SELECT name, cluster FROM links WHERE gateway = ? ORDER BY name, rowid")?;
    let rows = statement.query_map([&gateway.id], |row| {
        Ok(GatewayCluster {
            name: row.get(0)?,
            cluster_id: row.get(1)?,
        })
    })?;
    let clusters = rows.collect::<Result<_, _>>()?;
    Ok(GatewayEntry { clusters, ..gateway })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_kept_replaced_and_removed_and_is_not_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let entry = ClusterEntry {
            id: "a".into(),
            name: "prod".into(),
            ..ClusterEntry::default()
        };
        store
            .keep_cluster(&entry, Some(Some(&Secret::new("hunter2-hunter2"))))
            .unwrap();
        let stored = store.cluster("a").unwrap().unwrap();
        assert!(stored.has_password);
        let renamed = ClusterEntry {
            name: "production".into(),
            ..stored
        };
        store.keep_cluster(&renamed, None).unwrap();
        let stored = store.cluster("a").unwrap().unwrap();
        assert_eq!(
            store.cluster_secret(&stored).unwrap().unwrap().expose(),
            "hunter2-hunter2"
        );
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(7).any(|window| window == b"hunter2"));
        }
        store.keep_cluster(&stored, Some(None)).unwrap();
        assert!(!store.cluster("a").unwrap().unwrap().has_password);
    }

    #[test]
    fn a_gateways_token_and_its_client_certificate_are_kept_apart() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let gateway = GatewayEntry {
            id: "g".into(),
            name: "gw".into(),
            ..GatewayEntry::default()
        };
        let (token, pem) = (Secret::new("hunter2-token"), Secret::new("hunter2-pem"));
        store
            .keep_gateway(&gateway, Some(Some(&token)), Some(Some(&pem)))
            .unwrap();
        let secrets = || {
            let stored = store.gateway("g").unwrap().unwrap();
            let secrets = [store.gateway_token(&stored), store.gateway_client_pem(&stored)];
            (
                stored,
                secrets.map(|secret| secret.unwrap().map(|secret| secret.expose().to_owned())),
            )
        };
        let (stored, both) = secrets();
        assert!(stored.has_token && stored.has_client_pem);
        assert_eq!(
            both,
            ["hunter2-token", "hunter2-pem"].map(|text| Some(text.to_owned()))
        );
        store.keep_gateway(&stored, Some(None), None).unwrap();
        assert_eq!(secrets().1, [None, Some("hunter2-pem".to_owned())]);
        store.keep_gateway(&secrets().0, None, Some(None)).unwrap();
        assert!(!secrets().0.has_client_pem);
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(7).any(|window| window == b"hunter2"));
        }
    }

    #[test]
    fn names_are_taken_once_and_a_gateway_leaves_its_clusters_behind() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let gateway = GatewayEntry {
            id: "g".into(),
            name: "gw".into(),
            ..GatewayEntry::default()
        };
        store.keep_gateway(&gateway, None, None).unwrap();
        let cluster = ClusterEntry {
            id: "a".into(),
            name: "prod".into(),
            from_gateway: Some("g".into()),
            ..ClusterEntry::default()
        };
        store.keep_cluster(&cluster, None).unwrap();
        store.link("g", "prod", "a").unwrap();
        let other = ClusterEntry {
            id: "b".into(),
            ..cluster
        };
        assert!(matches!(
            store.keep_cluster(&other, None),
            Err(StoreError::Taken(_))
        ));
        assert_eq!(
            store.gateway("g").unwrap().unwrap().clusters[0]
                .cluster_id
                .as_deref(),
            Some("a")
        );
        store.forget_gateway("g").unwrap();
        assert_eq!(store.cluster("a").unwrap().unwrap().from_gateway, None);
        assert!(matches!(store.forget_gateway("g"), Err(StoreError::Missing)));
    }
}
