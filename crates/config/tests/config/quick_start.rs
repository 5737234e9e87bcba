//! The configuration of a command line without a file.

use config::*;

fn quick(cluster: &str, listen: &str) -> QuickStart {
    QuickStart {
        cluster: cluster.to_owned(),
        listen: listen.parse().unwrap(),
        insecure_skip_verify: false,
        ca_file: None,
        anonymous: Anonymous::Pass,
        admin: None,
        combine: false,
        direct_routing: Default::default(),
        rewrite_to_bulk: false,
        account: None,
    }
}

#[test]
fn the_quick_start_splits_bulks_and_forwards_the_rest() {
    let loaded = Config::quick_start(&quick("https://admin:hunter2@es:9243", "127.0.0.1:0")).unwrap();
    assert_eq!(loaded.warnings, []);
    let config = loaded.config;
    let flow = config.routers[&config.entries[0].router].route(&http::Method::POST, "/_bulk");
    let filters = &config.flows[&flow[0]].filters;
    assert!(matches!(&filters[0].action, FilterAction::BulkReshuffle(bulk) if bulk.level == Level::Node));
    assert!(matches!(&filters[1].action, FilterAction::Elasticsearch(_)));
    let cluster = config.clusters.values().next().unwrap();
    assert_eq!(cluster.endpoints[0].to_string(), "https://es:9243");
    assert!(
        matches!(&cluster.credentials, Some(Credentials::Basic { password, .. }) if password.expose() == "hunter2")
    );
    assert!(!format!("{config:?}").contains("hunter2"));

    let rejected = Config::quick_start(&quick("es:9200", "127.0.0.1:0")).unwrap_err();
    assert!(
        rejected.to_string().contains("--cluster: has no `http://`"),
        "{rejected}"
    );
}

#[test]
fn an_open_door_is_a_loud_warning() {
    let mut from = quick("http://admin:hunter2@127.0.0.1:9200", "0.0.0.0:8000");
    assert_eq!(
        Config::quick_start(&from).unwrap().warnings,
        [],
        "clients bring their own accounts"
    );
    from.anonymous = Anonymous::UseGatewayAccount;
    let loaded = Config::quick_start(&from).unwrap();
    assert!(
        loaded.warnings[0].message.starts_with("ANYONE who reaches"),
        "{:?}",
        loaded.warnings
    );

    from.listen = "127.0.0.1:8000".parse().unwrap();
    let loaded = Config::quick_start(&from).unwrap();
    assert_eq!(loaded.warnings, []);

    from.cluster = "http://127.0.0.1:9200".to_owned();
    let rejected = Config::quick_start(&from).unwrap_err();
    assert!(rejected.to_string().contains("no gateway account"), "{rejected}");
}
