//! The rules: what each alert is about, how bad it is, and how long it has to last.

use serde::{Deserialize, Serialize};

use crate::board::Severity;

/// One of the eight alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    NoAnswer,
    ClusterRed,
    DiskFull,
    WritesRejected,
    QueueRefuses,
    AccountsWrong,
    GroupBehind,
    DeadLetters,
}

/// Something that meets a rule, as of the last answer about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The part of the target: a queue or a consumer group; empty for the target as a whole.
    pub(crate) part: String,
    pub(crate) words: String,
}

impl Rule {
    pub(crate) const ALL: [Self; 8] = [
        Self::NoAnswer,
        Self::ClusterRed,
        Self::DiskFull,
        Self::WritesRejected,
        Self::QueueRefuses,
        Self::AccountsWrong,
        Self::GroupBehind,
        Self::DeadLetters,
    ];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::NoAnswer => "no_answer",
            Self::ClusterRed => "cluster_red",
            Self::DiskFull => "disk_full",
            Self::WritesRejected => "writes_rejected",
            Self::QueueRefuses => "queue_refuses",
            Self::AccountsWrong => "accounts_wrong",
            Self::GroupBehind => "group_behind",
            Self::DeadLetters => "dead_letters",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.word() == word)
    }

    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::NoAnswer => "A cluster or a gateway does not answer, or not with what is asked for.",
            Self::ClusterRed => "A cluster's health is red: some primary shards are not assigned.",
            Self::DiskFull => "The disk of a node is 90 % full or more.",
            Self::WritesRejected => "Nodes of a cluster reject writes.",
            Self::QueueRefuses => "A queue of a gateway accepts nothing.",
            Self::AccountsWrong => "The accounts of a consumer group do not add up.",
            Self::GroupBehind => "A consumer group is five minutes behind or more.",
            Self::DeadLetters => "There are dead letters in a queue.",
        }
    }

    pub(crate) const fn severity(self) -> Severity {
        match self {
            Self::NoAnswer | Self::ClusterRed | Self::QueueRefuses | Self::AccountsWrong => Severity::Bad,
            Self::DiskFull | Self::WritesRejected | Self::GroupBehind | Self::DeadLetters => Severity::Warn,
        }
    }

    /// How long the finding has to last before the alert begins.
    pub(crate) const fn hold_ms(self) -> i64 {
        match self {
            Self::NoAnswer | Self::ClusterRed => 30_000,
            Self::DiskFull | Self::WritesRejected => 60_000,
            Self::QueueRefuses => 10_000,
            // A sum that is ever wrong is really wrong, and the others count what has lasted already.
            Self::AccountsWrong | Self::GroupBehind | Self::DeadLetters => 0,
        }
    }
}

/// How long the finding has to be gone before the alert ends.
pub(crate) const GONE_MS: i64 = 30_000;
