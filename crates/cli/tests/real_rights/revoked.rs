//! A user whose account is deleted, and one who may only read from now on. Both were let in, and their writes
//! were queued; soon after, the gateway accepts nothing from them, while the nodes answer all the time.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::real::RealCluster;

use crate::{GatewayHome, Told, delivered, line, of, settled};

pub(crate) struct Revoked<'a> {
    cluster: &'a RealCluster,
    place: GatewayHome,
    index: String,
    deleted: User,
    demoted: User,
    since: Instant,
}

/// A user of one test.
struct User {
    name: String,
    password: &'static str,
    /// The number of writes that were queued.
    queued: u64,
}

impl<'a> Revoked<'a> {
    /// Has two users write through the queue, and takes away the account of one and the right of the other.
    pub(crate) fn begin(cluster: &'a RealCluster, password: &'static str) -> Result<Self> {
        let index = format!("rights-{}", cluster.fresh_name("revoked"));
        let one_shard = json!({"settings": {"number_of_shards": 1, "number_of_replicas": 0}});
        cluster.client()?.put(&format!("/{index}"), &one_shard)?.ok()?;
        let user = |name: &str| User {
            name: cluster.fresh_name(name),
            password,
            queued: 0,
        };
        let mut this = Self {
            cluster,
            place: GatewayHome::before(cluster)?,
            index,
            deleted: user("deleted"),
            demoted: user("demoted"),
            since: Instant::now(),
        };
        let (deleted, demoted) = (this.deleted.name.clone(), this.demoted.name.clone());
        set_users(
            cluster,
            password,
            &[(&deleted, Some("writer")), (&demoted, Some("writer"))],
        )?;
        for user in [&mut this.deleted, &mut this.demoted] {
            user.is_known(cluster)?;
            let told = user.writes(&this.place, &this.index)?;
            ensure!(matches!(told, Told::Queued), "{}: {told:?}", user.name);
        }
        set_users(cluster, password, &[(&deleted, None), (&demoted, Some("reader"))])?;
        this.since = Instant::now();
        Ok(this)
    }

    /// Waits until both are refused, and makes sure that what was refused is not there.
    pub(crate) fn are_refused(mut self) -> Result<()> {
        let client = self.cluster.client()?;
        for user in [&mut self.deleted, &mut self.demoted] {
            // Other answers than a refusal: nothing may be accepted any more, but a node may still be about
            // to learn of it.
            while !matches!(user.writes(&self.place, &self.index)?, Told::Refused) {
                ensure!(
                    self.since.elapsed() < REFUSED_WITHIN,
                    "{} is still not refused",
                    user.name
                );
                std::thread::sleep(Duration::from_millis(200));
            }
            let told = user.writes(&self.place, &self.index)?;
            ensure!(matches!(told, Told::Refused), "{}: {told:?}", user.name);
        }
        delivered(&self.place.gateway)?;
        let queues = self.place.gateway.admin().get("/queue/stats")?.ok()?.json()?;
        let queued = self.deleted.queued + self.demoted.queued;
        ensure!(queues["q"]["accepted"] == queued, "{queued}: {queues:#}");
        client
            .post(&format!("/{}/_refresh", self.index), &Value::Null)?
            .ok()?;
        let count = client.get(&format!("/{}/_count", self.index))?.ok()?.json()?;
        ensure!(count["count"] == queued, "{queued} were queued: {count}");
        let (deleted, demoted) = (self.deleted, self.demoted);
        set_users(
            self.cluster,
            demoted.password,
            &[(&deleted.name, None), (&demoted.name, None)],
        )?;
        client.delete(&format!("/{}", self.index))?.ok()?;
        Ok(())
    }
}

impl User {
    /// Waits until every node knows the user.
    fn is_known(&self, cluster: &RealCluster) -> Result<()> {
        let path = match cluster.engine() {
            "elasticsearch" => "/_security/_authenticate",
            _ => "/_plugins/_security/authinfo",
        };
        let began = Instant::now();
        for url in cluster.urls() {
            let node = cluster.client()?.at(&url).basic_auth(&self.name, self.password);
            while node.get(path)?.status != 200 {
                ensure!(
                    began.elapsed() < Duration::from_secs(30),
                    "{url} does not know {}",
                    self.name
                );
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        Ok(())
    }

    /// Writes a document that was not there before.
    fn writes(&mut self, place: &GatewayHome, index: &str) -> Result<Told> {
        let client: Client = place.gateway.client().basic_auth(&self.name, self.password);
        let id = format!("{}-{}", self.name, fastrand::u64(..));
        let answer = client.post_ndjson("/_bulk", line("index", index, &id).as_bytes())?;
        if answer.status == 401 {
            return Ok(Told::Refused);
        }
        let told = of(&answer)?;
        self.queued += u64::from(matches!(told, Told::Queued));
        Ok(told)
    }
}

/// Gives users a role each, or deletes them.
fn set_users(cluster: &RealCluster, password: &str, users: &[(&str, Option<&str>)]) -> Result<()> {
    if cluster.engine() == "elasticsearch" {
        return set_in_files(cluster, users);
    }
    let nodes = cluster.client()?;
    for (name, role) in users {
        let path = format!("/_plugins/_security/api/internalusers/{name}");
        let Some(role) = role else {
            settled(|| nodes.delete(&path))?;
            continue;
        };
        let roles = [format!("rights-{role}")];
        let account = json!({"password": password, "opendistro_security_roles": roles});
        settled(|| nodes.put(&path, &account))?.ok()?;
    }
    Ok(())
}

/// Edits the files of the file realm, which each node reads again within five seconds. The users have the
/// password that all users there have.
fn set_in_files(cluster: &RealCluster, users: &[(&str, Option<&str>)]) -> Result<()> {
    for &node in cluster.nodes() {
        let folder = cluster.config_folder(node);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| name.to_owned());
        let (mut accounts, mut roles) = (lines(&read("users")?), lines(&read("users_roles")?));
        let Some(hash) = accounts.iter().find_map(|line| line.strip_prefix("admin:")) else {
            bail!("node {node} has no account admin");
        };
        let hash = hash.to_owned();
        for (name, role) in users {
            accounts.retain(|line| !line.starts_with(&format!("{name}:")));
            roles.retain(|line| !line.ends_with(&format!(":{name}")));
            if let Some(role) = role {
                accounts.push(format!("{name}:{hash}"));
                roles.push(format!("{role}:{name}"));
            }
        }
        for (file, lines) in [("users", accounts), ("users_roles", roles)] {
            // A node that reads meanwhile reads the old file or the new one.
            let new = folder.join(format!("{file}.new"));
            std::fs::write(&new, lines.join("\n") + "\n")?;
            std::fs::rename(&new, folder.join(file))?;
        }
    }
    Ok(())
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// The gateway remembers what a client may do for 30 s, and a node its files for 5 s; the rest is for a busy
/// machine. While nodes can be reached, nothing is remembered for longer.
const REFUSED_WITHIN: Duration = Duration::from_secs(60);
