//! The configuration in effect, field by field, for the operator. It contains paths of files, not their content.

use crate::config::Config;
use crate::config::fields::{Purpose, Row, rows};

impl Config {
    /// Every field that has a value, defaults included, in the order of the file and as the file would write it.
    pub fn effective(&self) -> Vec<(String, String)> {
        let mut shown = self.clone();
        let (rows, _) = rows(Purpose::Show, |fields| shown.fields(fields));
        rows.into_iter().filter_map(|Row { path, value, .. }| Some((path, value?))).collect()
    }

    /// The fields whose values differ from those of `other`, in the order of the file.
    pub fn differing(&self, other: &Self) -> Vec<String> {
        let (own, others) = (self.effective(), other.effective());
        let [only_own, only_others] = [(&own, &others), (&others, &own)].map(|(these, those)| {
            these.iter().filter(move |field| !those.contains(field)).map(|(name, _)| name.clone())
        });
        let mut names: Vec<_> = only_own.collect();
        names.extend(only_others);
        let order = |name: &str| own.iter().chain(&others).position(|(field, _)| *field == name);
        names.sort_by_key(|name| order(name));
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AdminConfig, MetricsAuthorization, Overrides};

    fn effective(text: &str) -> Vec<(String, String)> {
        let text = format!("apiVersion: kube-fanout.io/v1alpha1\nkind: GatewayConfiguration\n{text}");
        Config::parse(&text, &Overrides::default()).unwrap().effective()
    }

    #[test]
    fn defaults_are_shown_as_the_file_would_write_them() {
        let fields = effective("");
        for expected in [
            ("listeners[].address", "127.0.0.1:8001"),
            ("clients.mode", "trusted"),
            ("cache.exclude", "[events, events.events.k8s.io]"),
            ("cache.history.bytes", "256Mi"),
            ("cache.verifyInterval", "5m"),
            ("reads.fillWait", "30s"),
            ("limits.answerBytes", "1Gi"),
            ("logging.level", "info"),
            ("drain.timeout", "20s"),
        ] {
            assert!(fields.contains(&(expected.0.to_owned(), expected.1.to_owned())), "{expected:?} in {fields:?}");
        }
        assert!(!fields.iter().any(|(field, _)| field == "cache.maxStaleness"), "{fields:?}");
    }

    #[test]
    fn what_authorizes_is_shown() {
        let mut config = Config::defaults(&Overrides::default()).unwrap();
        config.admin = AdminConfig { metrics_authorization: MetricsAuthorization::Delegated, ..config.admin };
        assert!(config.effective().contains(&("admin.metricsAuthorization".to_owned(), "delegated".to_owned())));
    }
}
