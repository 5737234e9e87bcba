//! The part of a gateway's file that all measurements have alike.

use std::fmt::Display;
use std::path::Path;

/// Bulks go to these filters, each a line of YAML below `filter`, and everything else to the cluster `fake`,
/// which the caller's own part describes. `tls` is the entry's, from its line break on.
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
