//! Queues in Kafka: the settings of a topic, and the keys that apply to only one kind of queue.

use std::sync::Arc;
use std::time::Duration;

use super::Resolver;
use crate::file::{KafkaTlsFile, QueueFile, QueueTypeFile};
use crate::runtime::{ClusterTls, KafkaTopic, Sasl, SaslMechanism};

impl Resolver<'_> {
    /// Returns the topic of a queue in Kafka. Refuses keys that apply only to the other kind of queue, unless
    /// they have their default values.
    pub(super) fn kafka(&mut self, path: &str, file: &QueueFile, name: &Arc<str>) -> Option<KafkaTopic> {
        let is_kafka = file.r#type == QueueTypeFile::Kafka;
        self.keys_of_the_other_kind(path, file);
        if !is_kafka {
            return None;
        }
        let topic: Arc<str> = match file.topic.as_str() {
            "" => Arc::clone(name),
            topic => topic.into(),
        };
        self.topic_and_brokers(path, file, &topic);
        self.times(path, file);
        let message_bytes_max = file.max_message_size.map(|bytes| bytes.0);
        if message_bytes_max.is_some_and(|bytes| !(64 << 10..=1_000_000_000).contains(&bytes)) {
            self.error(
                &format!("{path}.max_message_size"),
                "must be between 64kb and 1000000000",
            );
        }
        let tls = self.kafka_tls(&format!("{path}.tls"), &file.tls);
        let sasl = self.sasl(&format!("{path}.sasl"), file);
        Some(KafkaTopic {
            tls,
            sasl,
            brokers: file
                .brokers
                .0
                .iter()
                .map(|broker| broker.as_str().into())
                .collect(),
            topic,
            partitions: file.partitions,
            replicas: file
                .replication_factor
                .and_then(|replicas| u16::try_from(replicas).ok()),
            retention: file.retention.0,
            message_bytes_max: message_bytes_max.and_then(|bytes| u32::try_from(bytes).ok()),
            ack_timeout: file.ack_timeout.0,
            session_timeout: file.session_timeout.0,
        })
    }

    /// Refuses keys that apply only to the other kind of queue, unless they have their default values.
    fn keys_of_the_other_kind(&mut self, path: &str, file: &QueueFile) {
        let plain = QueueFile::default();
        let (of_other, why) = match file.r#type == QueueTypeFile::Kafka {
            true => (
                vec![
                    ("lanes", file.lanes != plain.lanes),
                    ("fsync", file.fsync != plain.fsync),
                    ("fsync_interval", file.fsync_interval != plain.fsync_interval),
                    ("max_size", file.max_size != plain.max_size),
                    ("min_free", file.min_free != plain.min_free),
                    ("spare_size", file.spare_size != plain.spare_size),
                ],
                "means nothing with `type: kafka`",
            ),
            false => (
                vec![
                    ("brokers", file.brokers != plain.brokers),
                    ("topic", file.topic != plain.topic),
                    ("partitions", file.partitions != plain.partitions),
                    (
                        "replication_factor",
                        file.replication_factor != plain.replication_factor,
                    ),
                    ("retention", file.retention != plain.retention),
                    (
                        "max_message_size",
                        file.max_message_size != plain.max_message_size,
                    ),
                    ("ack_timeout", file.ack_timeout != plain.ack_timeout),
                    ("session_timeout", file.session_timeout != plain.session_timeout),
                    ("tls", file.tls != plain.tls),
                    ("sasl", file.sasl != plain.sasl),
                ],
                "means something with `type: kafka` only",
            ),
        };
        for (key, _) in of_other.into_iter().filter(|(_, written)| *written) {
            let help = match key {
                "lanes" => Some("write `partitions`".to_owned()),
                _ => None,
            };
            self.error_with_help(&format!("{path}.{key}"), why, help);
        }
    }

    /// Refuses a name that no topic can have, and brokers that are not written as `host:port`.
    fn topic_and_brokers(&mut self, path: &str, file: &QueueFile, topic: &str) {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if topic.is_empty() || topic.len() > 249 || !topic.bytes().all(plain) {
            let message = format!(
                "`{topic}` is not a valid name of a topic: at most 249 letters, digits, `.`, `_` and `-`"
            );
            self.error(&format!("{path}.topic"), message);
        }
        if file.brokers.0.is_empty() {
            let message = "`type: kafka` needs `brokers`: `host:port` of some of them";
            self.error(path, message);
        }
        for broker in &file.brokers.0 {
            let port = broker
                .rsplit_once(':')
                .and_then(|(_, port)| port.parse::<u16>().ok());
            let message = match broker.split_once("://") {
                Some((scheme, _)) if !scheme.eq_ignore_ascii_case("plaintext") => {
                    format!("`{broker}`: write `host:port` alone; `tls` and `sasl` set the protocol")
                }
                Some(_) => format!("`{broker}`: write `host:port` alone"),
                None if port.is_none() || broker.contains(',') => {
                    format!("`{broker}` is not `host:port`, as in `kafka-1:9092`")
                }
                None => continue,
            };
            self.error(&format!("{path}.brokers"), message);
        }
    }

    fn times(&mut self, path: &str, file: &QueueFile) {
        for (key, time, least, most) in [
            ("ack_timeout", file.ack_timeout.0, 1, 300),
            ("session_timeout", file.session_timeout.0, 1, 1800),
            ("retention", file.retention.0, 60, 10 * 365 * 24 * 3600),
        ] {
            let (least, most) = (Duration::from_secs(least), Duration::from_secs(most));
            if time < least {
                self.error(
                    &format!("{path}.{key}"),
                    format!("is less than {}s", least.as_secs()),
                );
            } else if time > most {
                self.error(
                    &format!("{path}.{key}"),
                    format!("is more than {}s", most.as_secs()),
                );
            }
        }
    }

    /// Returns the TLS settings for the brokers, if TLS is on.
    fn kafka_tls(&mut self, path: &str, tls: &KafkaTlsFile) -> Option<ClusterTls> {
        if !tls.enabled {
            if *tls != KafkaTlsFile::default() {
                // Without this error everything would travel in plain text, contrary to what was intended.
                self.error(
                    path,
                    "says how to speak TLS and does not switch it on: write `enabled: true`",
                );
            }
            return None;
        }
        let checked = self.tls(
            path,
            tls.insecure_skip_verify,
            &tls.ca_file,
            (&tls.cert_file, &tls.key_file),
            "the brokers",
        );
        Some(checked)
    }

    /// Returns the account at the brokers.
    fn sasl(&mut self, path: &str, file: &QueueFile) -> Option<Sasl> {
        let sasl = file.sasl.as_ref()?;
        for (key, text) in [
            ("username", sasl.username.as_str()),
            ("password", sasl.password.expose()),
        ] {
            let path = format!("{path}.{key}");
            // A missing key has already been reported.
            if text.is_empty() && self.places.is_none_or(|places| places.has(&path)) {
                self.error(&path, "is empty");
            } else if text.contains('\0') {
                self.error(&path, "holds a NUL, which no account has");
            }
        }
        if !file.tls.enabled {
            let message = match sasl.mechanism {
                SaslMechanism::Plain => {
                    "the password travels in plain text, and so does all else: add `tls: {enabled: true}`"
                }
                _ => "what is written travels in plain text: add `tls: {enabled: true}`",
            };
            self.warning(path, message);
        }
        Some(Sasl {
            mechanism: sasl.mechanism,
            username: sasl.username.clone(),
            password: sasl.password.clone(),
        })
    }
}
