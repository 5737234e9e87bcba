//! `tidegate check --online`: the rights that the gateway's account needs at a cluster, one by one.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::Cluster;
use config::{Anonymous, Config, FilterAction};
use gateway::{AccountRight, AccountRights, AccountUse, RightVerdict};

use super::online::{Finding, Level};

/// Returns what the configuration makes the gateway's account do at a cluster. `more` are names that the user
/// says are written to.
pub(super) fn uses(config: &Config, cluster: &str, more: &[String]) -> AccountUse {
    let to_it = |action: &FilterAction| match action {
        FilterAction::BulkReshuffle(bulk) => *bulk.cluster == *cluster,
        FilterAction::Elasticsearch(forward) => *forward.cluster == *cluster,
    };
    let flows: BTreeSet<&str> = config
        .flows
        .iter()
        .filter(|(_, flow)| flow.filters.iter().any(|filter| to_it(&filter.action)))
        .map(|(name, _)| &**name)
        .collect();
    let routers = config.routers.values();
    let named = routers.flat_map(|router| router.indices(&|flow| flows.contains(flow)));
    let mut names: BTreeSet<String> = named.map(str::to_owned).collect();
    names.extend(more.iter().cloned());
    let delivers = config
        .deliveries
        .iter()
        .any(|delivery| *delivery.cluster == *cluster);
    let shares = config.clusters[cluster].anonymous == Anonymous::UseGatewayAccount && !flows.is_empty();
    AccountUse {
        writes: delivers || shares,
        delivers,
        names,
    }
}

/// Asks the cluster which rights the account has, and returns a finding for each.
pub(super) fn look(name: &str, watched: &Arc<Cluster>, used: &AccountUse) -> Vec<Finding> {
    let finding = |level, says, then| Finding {
        level,
        of: "cluster",
        name: name.to_owned(),
        says,
        then,
    };
    match gateway::account_rights(watched, used) {
        Ok(AccountRights::Open) => {
            let says = "it requires no account, so every right is granted".to_owned();
            vec![finding(Level::Fine, says, None)]
        }
        Ok(AccountRights::Asked(rights)) => rights
            .iter()
            .map(|right| {
                let (level, says, then) = told(right, used);
                finding(level, says, then)
            })
            .collect(),
        Err(error) => vec![finding(
            Level::Warning,
            format!("the account's rights cannot be determined: {error}"),
            None,
        )],
    }
}

/// Returns how bad the verdict is, what was found, and what to do.
fn told(right: &AccountRight, used: &AccountUse) -> (Level, String, Option<String>) {
    let AccountRight { action, called, .. } = right;
    let give = |what: &str| {
        Some(format!(
            "give the account {called}{what}: without it {}",
            right.without
        ))
    };
    let bad = match right.vital {
        true => Level::Error,
        false => Level::Warning,
    };
    match &right.verdict {
        RightVerdict::Granted(0) => (Level::Fine, format!("the account may {action} ({called})"), None),
        RightVerdict::Granted(names) => {
            let says = format!("the account may {action} ({called}), {names} of {names} names");
            (Level::Fine, says, None)
        }
        RightVerdict::Denied => (bad, format!("the account may not {action}"), give("")),
        RightVerdict::DeniedFor(names, asked) => {
            let certain = names.iter().any(|name| used.names.contains(name));
            let level = match certain || names.len() == *asked {
                true => bad,
                // Perhaps nobody writes there.
                false => Level::Warning,
            };
            let says = format!(
                "the account may not {action} in {} ({} of {asked} names)",
                listed(names),
                names.len()
            );
            (
                level,
                says,
                give(" there, if anybody writes there through the gateway"),
            )
        }
        RightVerdict::Unknown(why) => (
            Level::Warning,
            format!("it is unknown whether the account may {action} ({called}): {why}"),
            None,
        ),
    }
}

/// Lists the first few names.
fn listed(names: &[String]) -> String {
    let shown = names.len().min(NAMES_SHOWN_MAX);
    let more = match names.len() - shown {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", names[..shown].join(", "))
}

const NAMES_SHOWN_MAX: usize = 5;
