//! Fields that have no effect in the mode of a configuration.

use crate::config::{
    ClientsConfig, Config, DEFAULT_FORWARDED_PER_CLIENT, DEFAULT_WATCHES_PER_CLIENT, Problem,
    default_answer_bytes_per_client,
};

impl Config {
    /// The limits of each client that are set although the mode does not tell clients apart.
    pub fn ineffective_limits(&self) -> Vec<Problem> {
        let ClientsConfig::Trusted(_) = self.clients else { return Vec::new() };
        let limits = &self.limits;
        let fields = [
            ("limits.forwardedPerClient", limits.forwarded_per_client != DEFAULT_FORWARDED_PER_CLIENT),
            ("limits.watchesPerClient", limits.watches_per_client != DEFAULT_WATCHES_PER_CLIENT),
            (
                "limits.answerBytesPerClient",
                limits.answer_bytes_per_client != default_answer_bytes_per_client(limits.answer_bytes),
            ),
        ];
        let set = fields.into_iter().filter_map(|(field, is_set)| is_set.then_some(field));
        set.map(|field| Problem::new(field, "has no effect in mode trusted, which does not tell clients apart", ""))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{API_VERSION, KIND, Overrides};

    #[test]
    fn limits_per_client_are_reported_in_trusted_mode() {
        let told = |fields: &str| {
            let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
            let config = Config::parse(&text, &Overrides::default()).unwrap();
            config.ineffective_limits().into_iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        let limits = "limits: {forwardedPerClient: 10, watchesPerClient: 10, answerBytesPerClient: 20Mi}";
        let all = ["forwardedPerClient", "watchesPerClient", "answerBytesPerClient"];
        assert_eq!(told(limits), all.map(|field| format!("limits.{field}")));
        assert_eq!(told(&format!("clients: {{mode: delegated}}\n{limits}")), [""; 0]);
        assert_eq!(told("limits: {connections: 5, connectionsPerAddress: 2, answerBytes: 2Gi}"), [""; 0]);
    }
}
