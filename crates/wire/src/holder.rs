//! Who holds the memory of a body: an address, and the user that is known to send from there.
//!
//! Anybody can write any name into credentials, so a user counts only if the caller says that the cluster has
//! let these credentials in ([`Incoming::sent_by`](crate::Incoming::sent_by)).

use std::net::IpAddr;

/// One of those among whom memory is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// An IPv4 address, or 64 bits of an IPv6 address.
    Address(IpAddr),
    /// A user, whatever addresses its bodies come from.
    User(u128),
}

/// The holders whose shares a body counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) address: IpAddr,
    pub(crate) user: Option<u128>,
}

// === impl Sender ===

impl Sender {
    /// Returns an unknown user's sender at an address, as [`peer_of`](crate::admission::peer_of) gives it.
    #[cfg(test)]
    pub(crate) fn unknown(address: IpAddr) -> Self {
        Sender { address, user: None }
    }

    pub(crate) fn holders(self) -> impl Iterator<Item = Holder> + Clone {
        let user = self.user.map(Holder::User);
        std::iter::once(Holder::Address(self.address)).chain(user)
    }

    /// Returns whether this sender counts for a holder.
    pub(crate) fn is(self, holder: Holder) -> bool {
        match holder {
            Holder::Address(address) => self.address == address,
            Holder::User(user) => self.user == Some(user),
        }
    }
}
