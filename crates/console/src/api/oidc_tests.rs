//! Logins before a provider that does its part, and before one that does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper_util::service::TowerToHyperService;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use wire::guard::{Work, spawn};

use super::testing::{on_api_with, options, send};
use crate::outbound::Outbound;
use crate::roles::Role;
use crate::secrets::encoded_digest_of;
use crate::store::{AuditFilter, ClusterEntry, Store};

/// A provider, in the process of the test.
#[derive(Clone)]
struct Fake(Arc<Mutex<Provider>>);

struct Provider {
    issuer: String,
    signer: Signer,
    /// The signer whose key is published, if it is another one.
    published: Option<Signer>,
    /// Whether tokens do not say which key has signed them.
    names_no_key: bool,
    /// Keys that are published before the signer's.
    before: Vec<Value>,
    /// How often the keys were asked for.
    key_asks: usize,
    /// The ID token's claims, as the next login gets them.
    claims: Value,
    /// The token to give in place of a signed one.
    forged: Option<String>,
    challenge: String,
    is_down: bool,
    /// Bytes that its metadata are longer by.
    padding: usize,
    exchanges: usize,
}

#[derive(Clone)]
struct Signer {
    kid: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
    jwk: Value,
}

impl Signer {
    fn elliptic(kid: &'static str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = pair.public_key().as_ref()[1..].to_vec();
        let coordinate = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
        Self {
            kid,
            algorithm: Algorithm::ES256,
            key: EncodingKey::from_ec_der(pair.to_pkcs8v1().unwrap().as_ref()),
            jwk: json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "alg": "ES256",
                "x": coordinate(&point[..32]), "y": coordinate(&point[32..])}),
        }
    }

    fn rsa(kid: &'static str) -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let public = pair.public_key();
        let jwk = json!({"kty": "RSA", "kid": kid, "use": "sig",
            "n": number(public.modulus().big_endian_without_leading_zero()),
            "e": number(public.exponent().big_endian_without_leading_zero())});
        let pkcs8: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
        Self {
            kid,
            algorithm: Algorithm::RS256,
            key: EncodingKey::from_rsa_der(pkcs1_of(pkcs8.as_ref())),
            jwk,
        }
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_with(Some(self.kid), claims)
    }

    /// Signs a token that names its key so, or does not name it.
    fn sign_with(&self, kid: Option<&str>, claims: &Value) -> String {
        let header = Header {
            kid: kid.map(str::to_owned),
            ..Header::new(self.algorithm)
        };
        jsonwebtoken::encode(&header, claims, &self.key).unwrap()
    }
}

/// Returns the RSA key within a key in PKCS#8: its last field, behind a head of fixed length.
fn pkcs1_of(pkcs8: &[u8]) -> &[u8] {
    &pkcs8[26..]
}

impl Fake {
    fn router(&self) -> Router {
        let discover = async |State(fake): State<Fake>| {
            let fake = fake.0.lock();
            if fake.is_down {
                return Err(StatusCode::BAD_GATEWAY);
            }
            let issuer = &fake.issuer;
            Ok(Json(json!({
                "issuer": issuer, "authorization_endpoint": format!("{issuer}/auth?tenant=a"),
                "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
                "end_session_endpoint": format!("{issuer}/logout"),
                "token_endpoint_auth_methods_supported": ["client_secret_basic"], "padding": "x".repeat(fake.padding),
            })))
        };
        let keys = async |State(fake): State<Fake>| {
            let mut fake = fake.0.lock();
            fake.key_asks += 1;
            let shown = fake.published.as_ref().unwrap_or(&fake.signer);
            let mut keys = vec![json!({"kty": "future", "kid": "x"})];
            keys.extend(fake.before.iter().chain([&shown.jwk]).cloned());
            Json(json!({"keys": keys}))
        };
        Router::new()
            .route("/.well-known/openid-configuration", get(discover))
            .route("/keys", get(keys))
            .route("/token", post(exchange))
            .with_state(self.clone())
    }
}

/// Returns the parameters of a query or a form.
fn decoded(text: &str) -> BTreeMap<String, String> {
    let value = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8()
            .unwrap()
            .into_owned()
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, given)| (name.to_owned(), value(given)))
        .collect()
}

async fn exchange(State(fake): State<Fake>, headers: HeaderMap, form: String) -> (StatusCode, Json<Value>) {
    let form = decoded(&form);
    let mut fake = fake.0.lock();
    fake.exchanges += 1;
    let account = headers["authorization"].to_str().unwrap();
    assert_eq!(
        account,
        format!("Basic {}", STANDARD.encode("console:hunter2%2F2"))
    );
    assert_eq!(form["grant_type"], "authorization_code");
    assert_eq!(form["redirect_uri"], "http://localhost/api/oidc/callback");
    if form["code"] != "right" || encoded_digest_of(&form["code_verifier"]) != fake.challenge {
        let told = json!({"error": "invalid_grant", "error_description": "no such code"});
        return (StatusCode::BAD_REQUEST, Json(told));
    }
    let kid = (!fake.names_no_key).then_some(fake.signer.kid);
    let token = fake
        .forged
        .clone()
        .unwrap_or_else(|| fake.signer.sign_with(kid, &fake.claims));
    (
        StatusCode::OK,
        Json(json!({"access_token": "x", "id_token": token})),
    )
}

/// A console before the provider, and a browser.
struct Scene {
    fake: Fake,
    store: Store,
    routes: Router,
}

/// What the browser got at the end of a login.
#[derive(Debug)]
struct Ended {
    place: String,
    session: Option<String>,
}

fn on_scene(more: &str, test: impl AsyncFnOnce(Scene)) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let fake = Fake(Arc::new(Mutex::new(Provider {
        issuer: issuer.clone(),
        signer: Signer::elliptic("one"),
        published: None,
        names_no_key: false,
        before: Vec::new(),
        key_asks: 0,
        claims: Value::Null,
        forged: None,
        challenge: String::new(),
        is_down: false,
        padding: 0,
        exchanges: 0,
    })));
    let settings = format!(
        "issuer: {issuer}\nclient_id: console\nclient_secret: hunter2/2\nurl: http://localhost\nlabel: Log in with Fake\n{RULES}{more}"
    );
    on_api_with(Some(&settings), async |store, routes| {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let serving = fake.router();
        spawn(Work::Housekeeping, async move {
            let _ = axum::serve(listener, serving).await; // ends with the runtime
        });
        test(Scene { fake, store, routes }).await;
    });
}

const RULES: &str = "roles:
  - {value: ops, role: operator}
  - {value: boss, role: admin}
  - {value: prod, role: admin, cluster: prod}
";

impl Scene {
    async fn visit(&self, path: &str, cookie: &str) -> axum::http::Response<Body> {
        let request = Request::builder()
            .uri(format!("/api{path}"))
            .header("host", "localhost")
            .header("sec-fetch-site", "cross-site")
            .header("cookie", cookie);
        let service = TowerToHyperService::new(self.routes.clone());
        let request = request.body(Body::empty()).unwrap();
        hyper::service::Service::call(&service, request).await.unwrap()
    }

    /// Begins a login. Returns the parameters that the provider gets, and the cookie.
    async fn begin(&self, page: &str) -> (BTreeMap<String, String>, String) {
        let answer = self.visit(&format!("/oidc/login?page={page}"), "").await;
        let place = answer.headers()["location"].to_str().unwrap();
        let issuer = self.fake.0.lock().issuer.clone();
        let query = place.strip_prefix(&format!("{issuer}/auth?tenant=a&"));
        let query = query.unwrap_or_else(|| panic!("{place}"));
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap().to_owned();
        (decoded(query), cookie)
    }

    async fn finish(&self, query: &str, cookie: &str) -> Ended {
        let answer = self.visit(&format!("/oidc/callback?{query}"), cookie).await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        let cookies = answer.headers().get_all("set-cookie").iter();
        let mut cookies = cookies.map(|cookie| cookie.to_str().unwrap().split(';').next().unwrap());
        assert_eq!(cookies.next(), Some("tidegate-console-login="));
        let session = cookies
            .next()
            .and_then(|cookie| cookie.strip_prefix("tidegate-console="));
        let place = answer.headers()["location"].to_str().unwrap();
        Ended {
            place: place.strip_prefix("http://localhost").unwrap().to_owned(),
            session: session.map(str::to_owned),
        }
    }

    /// Logs in with these claims, which `spoil` may change at the last moment.
    async fn log_in(&self, groups: Value, spoil: impl FnOnce(&mut Provider)) -> Ended {
        let (parameters, cookie) = self.begin("/c/a?minutes=5").await;
        {
            let mut fake = self.fake.0.lock();
            let now = crate::clock::now_ms() / 1000;
            fake.challenge = parameters["code_challenge"].clone();
            fake.claims = json!({"iss": fake.issuer, "aud": "console", "sub": "7", "iat": now, "exp": now + 300,
                "nonce": parameters["nonce"], "preferred_username": "ada", "groups": groups});
            spoil(&mut fake);
        }
        self.finish(&format!("code=right&state={}", parameters["state"]), &cookie)
            .await
    }
}

#[test]
fn a_login_at_the_provider_gives_a_session_with_the_roles_of_the_groups_and_ends_there_too() {
    on_scene("", async |scene| {
        let cluster = ClusterEntry {
            id: "id-prod".into(),
            name: "prod".into(),
            ..ClusterEntry::default()
        };
        scene.store.keep_cluster(&cluster, None).unwrap();
        let (parameters, _) = scene.begin("/").await;
        assert_eq!(
            (
                &*parameters["response_type"],
                &*parameters["scope"],
                &*parameters["code_challenge_method"]
            ),
            ("code", "openid profile email", "S256")
        );
        let ended = scene.log_in(json!(["ops", "prod"]), |_| {}).await;
        assert_eq!(ended.place, "/c/a?minutes=5");
        let token = ended.session.unwrap();
        let user = scene.store.session(&token, true).unwrap().unwrap();
        assert_eq!(
            (&*user.name, user.roles.role, user.roles.on_cluster("id-prod")),
            ("ada", Role::Operator, Role::Admin)
        );
        let answer = send(
            &scene.routes,
            "POST",
            "/password",
            Some(&token),
            r#"{"old": "", "new": "0123456789"}"#,
        )
        .await;
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        let answer = send(
            &scene.routes,
            "POST",
            "/login",
            None,
            r#"{"name": "ada", "password": ""}"#,
        )
        .await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
        // The next login has the roles of that moment, also for the sessions that are there.
        let again = scene.log_in(json!(["boss"]), |_| {}).await.session.unwrap();
        for token in [&token, &again] {
            let user = scene.store.session(token, true).unwrap().unwrap();
            assert_eq!((user.roles.role, user.roles.clusters.len()), (Role::Admin, 0));
        }
        let entries = scene
            .store
            .audit(&AuditFilter::default(), None, 10)
            .unwrap()
            .entries;
        let told: Vec<_> = entries.iter().map(|entry| (&*entry.user, &*entry.what)).collect();
        assert_eq!(
            told,
            [
                ("ada", "log in"),
                ("ada", "change roles"),
                ("ada", "failed login"),
                ("ada", "log in"),
                ("ada", "add user")
            ]
        );
        let answer = send(&scene.routes, "POST", "/logout", Some(&token), "{}").await;
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let told: Value = serde_json::from_slice(&body).unwrap();
        let place = told["end_session"].as_str().unwrap();
        assert!(place.contains("/logout?client_id=console&post_logout_redirect_uri=http%3A%2F%2Flocalhost%2F&id_token_hint=ey"), "{place}");
        assert!(scene.store.session(&token, true).unwrap().is_none());
        assert!(
            scene.store.session(&again, true).unwrap().is_some(),
            "another browser's"
        );
    });
}

#[test]
fn tokens_that_are_not_for_this_login_give_no_session() {
    type Spoil = fn(&mut Provider);
    let spoils: [(&str, Spoil); 14] = [
        ("nonce", |fake| fake.claims["nonce"] = json!("another")),
        ("no nonce", |fake| {
            drop(fake.claims.as_object_mut().unwrap().remove("nonce"))
        }),
        ("aud", |fake| fake.claims["aud"] = json!("another")),
        ("no aud", |fake| {
            drop(fake.claims.as_object_mut().unwrap().remove("aud"))
        }),
        ("azp", |fake| fake.claims["azp"] = json!("another")),
        ("several aud", |fake| {
            fake.claims["aud"] = json!(["console", "another"])
        }),
        ("iss", |fake| fake.claims["iss"] = json!("https://evil.example")),
        ("several iss", |fake| {
            fake.claims["iss"] = json!([fake.issuer, "https://evil.example"])
        }),
        ("exp", |fake| {
            fake.claims["exp"] = json!(crate::clock::now_ms() / 1000 - 120)
        }),
        ("iat", |fake| {
            fake.claims["iat"] = json!(crate::clock::now_ms() / 1000 + 3600)
        }),
        ("sub", |fake| fake.claims["sub"] = json!("")),
        ("none", |fake| {
            let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let (head, claims) = (part(json!({"alg": "none"})), part(fake.claims.clone()));
            fake.forged = Some(format!("{head}.{claims}."));
        }),
        ("hmac of the public key", |fake| {
            let key = EncodingKey::from_secret(fake.signer.jwk["x"].as_str().unwrap().as_bytes());
            fake.forged =
                Some(jsonwebtoken::encode(&Header::new(Algorithm::HS256), &fake.claims, &key).unwrap());
        }),
        ("another key by the same name", |fake| {
            fake.forged = Some(Signer::elliptic("one").sign(&fake.claims))
        }),
    ];
    for (what, spoil) in spoils {
        on_scene("", async |scene| {
            let ended = scene.log_in(json!(["ops"]), spoil).await;
            assert_eq!((&*ended.place, ended.session), ("/#login=failed", None), "{what}");
            scene.fake.0.lock().forged = None;
            assert!(
                scene.log_in(json!(["ops"]), |_| {}).await.session.is_some(),
                "{what}"
            );
        });
    }
}

#[test]
fn who_has_no_group_with_a_role_is_not_let_in_and_leaves_no_user() {
    on_scene("", async |scene| {
        let ended = scene.log_in(json!(["strangers"]), |_| {}).await;
        assert_eq!((&*ended.place, ended.session), ("/#login=no_role", None));
        assert!(scene.store.user("ada").unwrap().is_none());
    });
    on_scene("default_role: viewer", async |scene| {
        assert!(scene.log_in(json!(null), |_| {}).await.session.is_some());
        assert_eq!(
            scene.store.user("ada").unwrap().unwrap().0.roles.role,
            Role::Viewer
        );
    });
}

#[test]
fn who_has_lost_all_groups_loses_roles_and_sessions_with_the_next_login() {
    on_scene("", async |scene| {
        let token = scene.log_in(json!(["boss"]), |_| {}).await.session.unwrap();
        let ended = scene.log_in(json!(["strangers"]), |_| {}).await;
        assert_eq!((&*ended.place, ended.session), ("/#login=no_role", None));
        assert!(scene.store.session(&token, true).unwrap().is_none());
        let (user, _) = scene.store.user("ada").unwrap().unwrap();
        assert_eq!(user.roles.role, Role::None);
        let told = scene
            .store
            .audit(&AuditFilter::default(), None, 1)
            .unwrap()
            .entries;
        assert_eq!(
            (&*told[0].user, &*told[0].what, told[0].after.as_ref().unwrap()),
            ("ada", "change roles", &json!({"role": "none", "clusters": {}}))
        );
    });
}

#[test]
fn another_name_at_the_provider_is_in_the_audit_log() {
    on_scene("", async |scene| {
        scene.log_in(json!(["ops"]), |_| {}).await;
        let renamed = |fake: &mut Provider| fake.claims["preferred_username"] = json!("eve");
        scene.log_in(json!(["ops"]), renamed).await;
        let told = scene
            .store
            .audit(&AuditFilter::default(), None, 2)
            .unwrap()
            .entries;
        let told = &told[1];
        assert_eq!(
            (&*told.user, &*told.what, &*told.target),
            ("eve", "rename user", "eve")
        );
        assert_eq!(told.before, Some(json!({"name": "ada"})));
    });
}

#[test]
fn an_endless_description_of_the_provider_is_not_read_to_its_end() {
    on_scene("", async |scene| {
        scene.fake.0.lock().padding = 300 << 10;
        let answer = scene.visit("/oidc/login", "").await;
        assert_eq!(answer.headers()["location"], "http://localhost/#login=provider");
    });
}

#[test]
fn cookies_are_for_tls_only_where_browsers_have_tls() {
    let settings =
        "issuer: http://127.0.0.1:1\nclient_id: c\nurl: https://console.example\ndefault_role: viewer\n";
    on_api_with(Some(settings), async |_, routes| {
        let request = Request::builder()
            .uri("/api/oidc/login")
            .header("host", "console.example");
        let request = request.body(Body::empty()).unwrap();
        let service = TowerToHyperService::new(routes);
        let answer = hyper::service::Service::call(&service, request).await.unwrap();
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        assert!(
            cookie.starts_with("__Host-tidegate-console-login=") && cookie.ends_with("; Secure"),
            "{cookie}"
        );
    });
}

#[test]
fn sessions_end_at_the_start_that_no_longer_lets_their_users_log_in() {
    on_scene("", async |scene| {
        let of_provider = scene.log_in(json!(["ops"]), |_| {}).await.session.unwrap();
        let (root, _) = scene.store.user("root").unwrap().unwrap();
        let of_console = scene.store.begin_session(root.id).unwrap();
        let issuer = scene.fake.0.lock().issuer.clone();
        let file = |issuer: &str, more: &str| {
            format!("issuer: {issuer}\nclient_id: c\nurl: http://localhost\n{RULES}{more}")
        };
        let left = |file: Option<&str>| {
            let options = options(std::path::Path::new(""), file);
            crate::oidc(&options, &scene.store, &Outbound::new().0).unwrap();
            [&of_provider, &of_console].map(|token| scene.store.session(token, true).unwrap().is_some())
        };
        assert_eq!(left(Some(&file(&issuer, ""))), [true, true]);
        assert_eq!(left(Some(&file(&issuer, "password_login: false"))), [true, false]);
        assert_eq!(left(Some(&file("https://another.example", ""))), [false, false]);
        let again = scene.log_in(json!(["ops"]), |_| {}).await.session.unwrap();
        left(None);
        assert!(scene.store.session(&again, true).unwrap().is_none());
    });
}

#[test]
fn a_start_with_other_rules_ends_the_sessions_that_have_their_roles_from_the_former_ones() {
    on_scene("", async |scene| {
        let issuer = scene.fake.0.lock().issuer.clone();
        let (root, _) = scene.store.user("root").unwrap().unwrap();
        let of_console = scene.store.begin_session(root.id).unwrap();
        let mut of_provider = scene.log_in(json!(["ops"]), |_| {}).await.session.unwrap();
        let is_left = |token: &str, rules: &str| {
            let file = format!("issuer: {issuer}\nclient_id: c\nurl: http://localhost\n{rules}");
            let options = options(std::path::Path::new(""), Some(&file));
            crate::oidc(&options, &scene.store, &Outbound::new().0).unwrap();
            scene.store.session(token, true).unwrap().is_some()
        };
        let (first, others) = RULES.split_once("\n").unwrap();
        let turned: Vec<&str> = others.lines().rev().collect();
        let turned = format!("{first}\n{}\n", turned.join("\n"));
        assert!(is_left(&of_provider, RULES) && is_left(&of_provider, &turned));
        for changed in [
            RULES.replace("operator", "viewer"),
            RULES.replace("cluster: prod", "cluster: test"),
            format!("{RULES}default_role: viewer\n"),
            format!("{RULES}roles_claim: roles\n"),
        ] {
            assert!(!is_left(&of_provider, &changed), "{changed}");
            of_provider = scene.log_in(json!(["ops"]), |_| {}).await.session.unwrap();
            assert!(is_left(&of_provider, &changed), "{changed}");
        }
        assert!(is_left(&of_console, RULES));
    });
}

#[test]
fn sessions_of_the_providers_users_end_when_the_settings_say_so() {
    on_scene("session_minutes: 5", async |scene| {
        let token = scene.log_in(json!(["ops"]), |_| {}).await.session.unwrap();
        let (user, _) = scene.store.user("ada").unwrap().unwrap();
        assert!(scene.store.session(&token, true).unwrap().is_some());
        let over = scene.store.begin_session_with(user.id, None, Some(-1)).unwrap();
        assert!(scene.store.session(&over, true).unwrap().is_none());
        let (parameters, cookie) = scene.begin("/").await;
        {
            let mut fake = scene.fake.0.lock();
            fake.challenge = parameters["code_challenge"].clone();
            fake.claims["nonce"] = json!(parameters["nonce"]);
        }
        let path = format!("/oidc/callback?code=right&state={}", parameters["state"]);
        let answer = scene.visit(&path, &cookie).await;
        let cookies = answer.headers().get_all("set-cookie").iter();
        let told: Vec<&str> = cookies.map(|cookie| cookie.to_str().unwrap()).collect();
        assert!(
            told.iter().any(|cookie| cookie.contains("; Max-Age=300;")),
            "{told:?}"
        );
    });
}

#[test]
fn a_browser_comes_back_from_its_own_login_only_and_to_the_consoles_pages_only() {
    on_scene("", async |scene| {
        let (parameters, cookie) = scene.begin("/").await;
        let state = &parameters["state"];
        for (query, cookie, word) in [
            (format!("code=right&state={state}"), "", "stale"),
            (
                format!("code=right&state={state}"),
                "tidegate-console-login=forged",
                "stale",
            ),
            ("code=right&state=another".to_owned(), &*cookie, "stale"),
            ("code=right".to_owned(), &cookie, "stale"),
            (
                format!("code=right&state={state}&iss=https%3A%2F%2Fevil.example"),
                &cookie,
                "failed",
            ),
            (format!("error=access_denied&state={state}"), &cookie, "denied"),
            (format!("error=server_error&state={state}"), &cookie, "failed"),
            (format!("state={state}"), &cookie, "failed"),
        ] {
            let ended = scene.finish(&query, cookie).await;
            assert_eq!(
                (ended.place, ended.session),
                (format!("/#login={word}"), None),
                "{query}"
            );
        }
        let begun = json!({"state": "s", "nonce": "n", "verifier": "v", "page": "/", "at_ms": crate::clock::now_ms() - 601_000});
        let old = scene
            .store
            .seal("oidc/login", &settings::Secret::new(begun.to_string()))
            .unwrap();
        let ended = scene
            .finish("code=right&state=s", &format!("tidegate-console-login={old}"))
            .await;
        assert_eq!(ended.place, "/#login=stale");
        assert_eq!(scene.fake.0.lock().exchanges, 0, "none of this asks the provider");
        let (_, cookie) = scene.begin("//evil.example/").await;
        let kept = scene
            .store
            .unseal("oidc/login", cookie.split_once('=').unwrap().1)
            .unwrap();
        assert!(kept.expose().contains(r#""page":"/""#));
        let (_, cookie) = scene.begin("/c/a").await;
        assert!(!cookie.contains("/c/a"), "it is sealed");
    });
}

#[test]
fn codes_and_passwords_that_strangers_try_shut_nobody_out() {
    on_scene("", async |scene| {
        for _ in 0..7 {
            let login = send(
                &scene.routes,
                "POST",
                "/login",
                None,
                r#"{"name": "x", "password": "y"}"#,
            );
            login.await;
        }
        for turn in 0..20 {
            let (parameters, cookie) = scene.begin("/").await;
            let ended = scene
                .finish(&format!("code=guessed&state={}", parameters["state"]), &cookie)
                .await;
            assert_eq!(ended.place, "/#login=failed", "{turn}");
        }
        assert_eq!(scene.fake.0.lock().exchanges, 20);
        assert!(scene.log_in(json!(["ops"]), |_| {}).await.session.is_some());
    });
}

#[test]
fn a_new_key_of_the_provider_is_asked_for_when_it_is_first_met_and_a_former_one_is_no_longer_taken() {
    on_scene("", async |scene| {
        assert!(scene.log_in(json!(["ops"]), |_| {}).await.session.is_some());
        let former = scene.fake.0.lock().signer.clone();
        scene.fake.0.lock().signer = Signer::rsa("two");
        assert!(scene.log_in(json!(["ops"]), |_| {}).await.session.is_some());
        let now = scene.fake.0.lock().signer.clone();
        scene.fake.0.lock().published = Some(now);
        let ended = scene
            .log_in(json!(["ops"]), |fake| {
                fake.forged = Some(former.sign(&fake.claims))
            })
            .await;
        assert_eq!((&*ended.place, ended.session), ("/#login=failed", None));
    });
}

#[test]
fn a_token_that_does_not_name_its_key_is_accepted_at_once_after_the_provider_has_changed_keys() {
    on_scene("", async |scene| {
        scene.fake.0.lock().names_no_key = true;
        assert!(scene.log_in(json!(["ops"]), |_| {}).await.session.is_some());
        // Of the same name, too.
        scene.fake.0.lock().signer = Signer::elliptic("one");
        assert!(scene.log_in(json!(["ops"]), |_| {}).await.session.is_some());
        let asks = || scene.fake.0.lock().key_asks;
        assert_eq!(asks(), 2);
        let began = std::time::Instant::now();
        // Tokens that no key has signed do not make the console ask again and again.
        for _ in 0..3 {
            let forge = |fake: &mut Provider| {
                fake.forged = Some(Signer::elliptic("one").sign_with(None, &fake.claims));
            };
            let ended = scene.log_in(json!(["ops"]), forge).await;
            assert_eq!((&*ended.place, ended.session), ("/#login=failed", None));
        }
        let more = began.elapsed().as_secs() / 10;
        assert!(asks() as u64 <= 2 + more, "{}", asks());
    });
}

#[test]
fn a_key_that_cannot_be_used_does_not_stand_in_the_way_of_another() {
    on_scene("", async |scene| {
        let other = Signer::elliptic("one").jwk;
        let mut broken = [other.clone(), other.clone(), other];
        broken[0]["x"] = json!("!");
        broken[1]["x"] = json!("AAAA");
        {
            let mut fake = scene.fake.0.lock();
            fake.names_no_key = true;
            fake.before = broken.to_vec();
        }
        let ended = scene.log_in(json!(["ops"]), |_| {}).await;
        assert!(ended.session.is_some(), "{}", ended.place);
        // What is wrong with the claims is not hidden by a key that comes later.
        let late = |fake: &mut Provider| fake.claims["exp"] = json!(crate::clock::now_ms() / 1000 - 120);
        assert!(scene.log_in(json!(["ops"]), late).await.session.is_none());
        assert_eq!(scene.fake.0.lock().key_asks, 1, "the signature is right");
    });
}

#[test]
fn while_the_provider_is_down_the_login_page_says_so_and_passwords_are_taken() {
    on_scene("", async |scene| {
        scene.fake.0.lock().is_down = true;
        // The second time, it is not asked.
        for _ in 0..2 {
            let answer = scene.visit("/oidc/login", "").await;
            assert_eq!(answer.headers()["location"], "http://localhost/#login=provider");
        }
        let answer = send(
            &scene.routes,
            "POST",
            "/login",
            None,
            r#"{"name": "x", "password": "y"}"#,
        )
        .await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    });
    on_scene("password_login: false", async |scene| {
        for path in ["/login", "/setup"] {
            let body = r#"{"name": "root", "password": "0123456789", "link": "x"}"#;
            let answer = send(&scene.routes, "POST", path, None, body).await;
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
        }
        let answer = send(&scene.routes, "GET", "/session", None, "").await;
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        let told: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            told["login"],
            json!({"password": false, "oidc": {"label": "Log in with Fake"}})
        );
    });
}
