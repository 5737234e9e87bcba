//! Who holds the memory of a body: an address, and the user that is known to send from there.
//!
//! Anybody can write any name into credentials, so a user counts only if the caller says that the cluster has
//! let these credentials in ([`Incoming::sent_by`](crate::Incoming::sent_by)). Senders with other credentials
//! are one holder together, since new credentials cost nothing.

use std::net::IpAddr;

/// The sender of a body, as far as the caller knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Principal {
    /// Nobody asks who it is.
    #[default]
    Anybody,
    /// It is asked who it is, and nobody has confirmed its credentials yet.
    Unproven,
    /// The user of this number, whose credentials were checked.
    User(u128),
}

/// One of those among whom memory is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// An IPv4 address, or 64 bits of an IPv6 address.
    Address(IpAddr),
    /// A user, whatever addresses its bodies come from.
    User(u128),
    /// All whose credentials nobody has confirmed.
    Unproven,
}

/// The holders whose shares a body counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) address: IpAddr,
    pub(crate) principal: Principal,
}

// === impl Sender ===

impl Sender {
    /// Returns the sender at an address, as [`peer_of`](crate::admission::peer_of) gives it, of whom nobody
    /// asks who it is.
    #[cfg(test)]
    pub(crate) fn unknown(address: IpAddr) -> Self {
        Sender {
            address,
            principal: Principal::Anybody,
        }
    }

    /// Returns the holder that the sender is beside its address.
    pub(crate) fn beside_address(self) -> Option<Holder> {
        match self.principal {
            Principal::Anybody => None,
            Principal::Unproven => Some(Holder::Unproven),
            Principal::User(user) => Some(Holder::User(user)),
        }
    }

    pub(crate) fn holders(self) -> impl Iterator<Item = Holder> + Clone {
        std::iter::once(Holder::Address(self.address)).chain(self.beside_address())
    }

    /// Returns whether this sender counts for a holder.
    pub(crate) fn is(self, holder: Holder) -> bool {
        self.holders().any(|one| one == holder)
    }
}
