//! TLS files that are replaced while a cluster is watched.

use cluster::{Address, ClusterConfig, TlsFiles};

use crate::fake::Fake;
use crate::{config, start};

#[test]
fn a_watch_knows_whether_its_tls_files_were_replaced_and_a_new_one_loads_them() {
    let file = std::env::temp_dir().join(format!("tidegate-watch-ca-{}.pem", std::process::id()));
    std::fs::write(&file, include_bytes!("../fixtures/tls/ca-early.pem")).unwrap();
    let mut secured = ClusterConfig::new(
        "test",
        vec![Address::from_endpoint("https://127.0.0.1:1").unwrap()],
    );
    secured.tls = TlsFiles {
        ca_file: Some(file.clone()),
        ..TlsFiles::default()
    };
    let cluster = start(secured.clone());
    assert_eq!(cluster.tls().unwrap().ca_expires, Some(1_968_681_253));
    assert!(!cluster.tls_changed());
    // A deployment that swaps links may keep the time of a file.
    let before = std::fs::metadata(&file).unwrap().modified().unwrap();
    std::fs::write(&file, include_bytes!("../fixtures/tls/ca-late.pem")).unwrap();
    let written = std::fs::File::options().write(true).open(&file).unwrap();
    written.set_modified(before).unwrap();
    assert!(cluster.tls_changed());
    assert_eq!(
        cluster.tls().unwrap().ca_expires,
        Some(1_968_681_253),
        "what is in use has not changed"
    );
    let anew = start(secured.clone());
    assert_eq!(anew.tls().unwrap().ca_expires, Some(2_832_681_253));
    assert!(!anew.tls_changed());
    std::fs::remove_file(&file).unwrap();
    assert!(anew.tls_changed(), "a reload is to say what is wrong");
    assert!(cluster::Cluster::start(secured).is_err());

    let fake = Fake::start(1);
    let plain = start(config(&fake));
    assert!(
        plain.tls().is_none() && !plain.tls_changed(),
        "no endpoint needs the files"
    );
}
