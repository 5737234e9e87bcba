//! `SIGHUP` reloads. Alone in its process, because a signal reaches every watch there.

use std::sync::Arc;
use std::time::Duration;

use gateway::config::Config;
use gateway::config::reload::{Reload, Reloaded};

const FILE: &str = "
entry:  [{name: e, router: r, network.binding: '127.0.0.1:8000'}]
router: [{name: r, default_flow: f}]
flow:   [{name: f, filter: [{elasticsearch: {elasticsearch: c}}]}]
elasticsearch: [{name: c, endpoint: 'http://127.0.0.1:9200'}]
";

#[tokio::test]
async fn sighup_reads_the_file_even_where_changes_alone_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.yml");
    let text = format!("{FILE}configs.auto_reload: false\n");
    std::fs::write(&file, &text).unwrap();
    let running = Config::parse(&text, None, &|_| None).unwrap().config;
    let mut reload = Reload::watch(&file, Arc::new(running)).unwrap();
    std::fs::write(&file, text.replace("name: f,", "name: f , ")).unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(300), reload.next())
            .await
            .is_err()
    );

    let pid = std::process::id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-HUP", &pid])
            .status()
            .unwrap()
            .success()
    );
    let reloaded = tokio::time::timeout(Duration::from_secs(20), reload.next())
        .await
        .unwrap();
    let Reloaded::Good { changes, .. } = reloaded else {
        panic!("{reloaded:?}")
    };
    assert_eq!(changes.to_string(), "nothing changed", "a space is no difference");
}
