//! `upstream.servers`: further addresses of the cluster's API servers.

use crate::config::check::{Check, given};
use crate::config::raw::Scalar;
use crate::config::{SERVERS_MAX, ServerAddress};

const FIELD: &str = "upstream.servers";

impl Check {
    /// Without the field, the address of the kubeconfig is used.
    pub(super) fn servers(&mut self, raw: Option<&[Scalar]>) -> Vec<ServerAddress> {
        let Some(raw) = raw else { return Vec::new() };
        if raw.is_empty() {
            self.problem(FIELD, "an empty list", "at least one address, or remove this field");
        }
        if raw.len() > SERVERS_MAX {
            self.problem(FIELD, &format!("{} addresses", raw.len()), &format!("at most {SERVERS_MAX}"));
        }
        let mut servers = Vec::new();
        for (index, Scalar(text)) in raw.iter().enumerate() {
            let field = format!("{FIELD}[{index}]");
            match text.parse::<ServerAddress>() {
                Err(why) => self.problem(&field, &format!("{}: {why}", given(text)), ServerAddress::ALLOWED),
                Ok(server) if servers.contains(&server) => {
                    self.problem(&field, &format!("{}: it is there already", given(text)), "each server once");
                }
                Ok(server) => servers.push(server),
            }
        }
        servers
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{API_VERSION, Config, KIND, Overrides, Problems};

    fn parse(servers: &str) -> Result<Config, Problems> {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\nupstream: {{servers: {servers}}}");
        Config::parse(&text, &Overrides::default())
    }

    #[test]
    fn duplicate_servers_are_refused() {
        let config = parse("['10.0.0.1:6443', '[::1]:6443', 'api.example:443']").unwrap();
        let texts: Vec<_> = config.servers.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.1:6443", "[::1]:6443", "api.example:443"]);
        assert!(
            config
                .effective()
                .contains(&("upstream.servers", "[10.0.0.1:6443, [::1]:6443, api.example:443]".to_owned()))
        );
        assert_eq!(Config::defaults(&Overrides::default()).unwrap().servers, []);
    }

    #[test]
    fn invalid_lists_are_refused_with_a_reason() {
        let many: Vec<_> = (1..=17).map(|port| format!("'a:{port}'")).collect();
        for (servers, problem) in [
            ("[]", "upstream.servers: an empty list; allowed: at least one address, or remove this field"),
            (
                "['a:1', 'https://b:2/']",
                "upstream.servers[1]: \"https://b:2/\" was given: it has a scheme; that of the kubeconfig is used; \
                 allowed: HOST:PORT of an API server of the same cluster, such as 10.0.0.1:6443",
            ),
            (
                "['A:1', 'a:1']",
                "upstream.servers[1]: \"a:1\" was given: it is there already; allowed: each server once",
            ),
            (&format!("[{}]", many.join(",")), "upstream.servers: 17 addresses; allowed: at most 16"),
        ] {
            assert_eq!(parse(servers).unwrap_err().to_string(), problem, "{servers}");
        }
    }
}
