//! Which server reads the body: the same line means different things to different versions.

/// The engine's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// OpenSearch 1, 2, 3.
    OpenSearch,
    /// Elasticsearch 7, 8, 9.
    Elasticsearch,
}

/// A server version. Ordered as versions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u16,
    /// Second number.
    pub minor: u16,
    /// Third number.
    pub patch: u16,
}

/// How the cluster reads a bulk body. In a cluster of mixed versions: the lowest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect {
    /// The engine's family.
    pub flavour: Flavour,
    /// The version, the lowest among the nodes.
    pub version: Version,
    /// `rest.action.multi.allow_explicit_index`; `true` unless the cluster says otherwise.
    pub allow_explicit_index: bool,
}

// === impl Version ===

impl Version {
    /// `major.minor.patch`.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }
}

// === impl Dialect ===

impl Dialect {
    /// A dialect with the default settings.
    pub const fn new(flavour: Flavour, version: Version) -> Self {
        Self {
            flavour,
            version,
            allow_explicit_index: true,
        }
    }

    /// Whether items of replies name a `_type`: Elasticsearch 7 and OpenSearch 1 (`BulkItemResponse.toXContent`).
    pub fn items_have_type(&self) -> bool {
        match self.flavour {
            Flavour::Elasticsearch => self.version.major <= 7,
            Flavour::OpenSearch => self.version.major <= 1,
        }
    }

    /// Whether a reply begins with `errors`: Elasticsearch from 8 on; the others begin with `took`
    /// (`BulkResponse.toXContent`).
    pub fn errors_first(&self) -> bool {
        self.flavour == Flavour::Elasticsearch && self.version.major >= 8
    }

    pub(crate) fn elasticsearch_from(&self, major: u16, minor: u16) -> bool {
        self.flavour == Flavour::Elasticsearch && self.version >= Version::new(major, minor, 0)
    }
}
