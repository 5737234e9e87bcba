//! The part of a gateway's file that is the same in all measurements.

use std::fmt::Display;
use std::path::Path;

/// Returns a file that sends bulks to these filters, each a line of YAML below `filter`, and everything else
/// to the cluster `fake`, which the caller's own part describes. `tls` is the entry's TLS section, starting
/// with a line break.
pub(super) fn gateway_file(
    folder: &Path,
    address: impl Display,
    admin: impl Display,
    tls: &str,
    filters: &str,
) -> String {
    let folder = folder.display();
    format!(
        "path.data: {folder}/data
admin.binding: {admin}
entry:
  - name: es
    router: es
    network.binding: {address}{tls}
router:
  - name: es
    default_flow: forward
    rules:
      - method: [POST, PUT]
        pattern: [\"/_bulk\", \"/{{index}}/_bulk\"]
        flow: [bulk]
flow:
  - name: bulk
    filter:
{filters}
  - name: forward
    filter:
      - elasticsearch: {{elasticsearch: fake}}
"
    )
}
