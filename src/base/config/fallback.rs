//! Where a gateway goes if none of its servers can be used: `upstream.fallback`.

use std::ops::RangeInclusive;

use crate::config::{
    PemFile, Problem, ServerAddress,
    fields::{Fields, Maybe, Number, PEM, about},
    upstream::{SERVER, SERVERS_MAX},
};
use crate::telemetry::Chain;

const PERCENT: RangeInclusive<u32> = 1..=100;

/// The field of the authorities.
pub const FALLBACK_CA_FILE: &str = "upstream.fallback.caFile";

/// Servers of the same cluster that are used while no other one can be: the API server itself, if the others are
/// gateways in front of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackConfig {
    /// At least one.
    pub servers: Vec<ServerAddress>,
    /// Authorities that are believed besides those of the kubeconfig.
    pub ca: Option<PemFile>,
    /// The chance, in percent, that this gateway goes there.
    pub percent: u32,
}

impl FallbackConfig {
    pub(super) fn fields(&mut self, fields: &mut Fields<'_>) {
        let text = about(
            "1 to 16 addresses `HOST:PORT` of the same cluster, used while none of the others is: the API server \
             itself, if upstream are gateways; see *Several API servers*",
        );
        fields.set("servers", text.default("none: no fallback"), &mut self.servers, &SERVER);
        fields.length("servers", 1, Some(SERVERS_MAX));
        fields.keyword("", "required", ["servers"].into());
        if !fields.is_given("servers") {
            fields.problem("servers", "missing", "at least one address, or remove upstream.fallback");
        }
        let text = about(
            "authorities of the servers' certificates, besides those of the kubeconfig, which has to name some. Read \
             at the start",
        );
        fields.value("caFile", text.default("none: those of the kubeconfig"), &mut self.ca, &Maybe(PEM));
        let text = about(
            "how many of a hundred gateways go there in an outage, which each draws at its start; the others answer \
             from memory until a server is there again",
        );
        fields.value("percent", text, &mut self.percent, &Number(PERCENT));
    }

    /// The access with the authorities of `caFile` besides its own.
    ///
    /// # Errors
    /// The file cannot be used, or the access has no authorities of its own: those of the system cannot be added to.
    pub async fn trusted(&self, mut access: kube_client::Config) -> Result<kube_client::Config, Problem> {
        let Some(file) = &self.ca else { return Ok(access) };
        let unusable = |error: String| Problem::new(FALLBACK_CA_FILE, &error, "");
        let pem = file.read().await.map_err(|error| unusable(Chain(&error).to_string()))?;
        let more = file.authorities(&pem).map_err(|error| unusable(Chain(&error).to_string()))?;
        let Some(roots) = &mut access.root_cert else {
            let found = "the kubeconfig names no authority to which these could be added";
            return Err(Problem::new(FALLBACK_CA_FILE, found, "certificate-authority in the kubeconfig"));
        };
        roots.extend(more.iter().map(|authority| authority.to_vec()));
        Ok(access)
    }
}

impl Default for FallbackConfig {
    fn default() -> Self {
        Self { servers: Vec::new(), ca: None, percent: 10 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{API_VERSION, Config, KIND, Overrides};

    fn parse(fallback: &str) -> Result<Option<FallbackConfig>, String> {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\nupstream: {{fallback: {fallback}}}");
        let config = Config::parse(&text, &Overrides::default());
        config.map(|config| config.fallback).map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_fallback_has_servers_and_a_share() {
        let config = parse("{servers: ['kubernetes.default.svc:443']}").unwrap().unwrap();
        assert_eq!((config.servers.len(), config.percent, config.ca), (1, 10, None));
        for (fallback, problem) in [
            ("{}", "upstream.fallback.servers: missing; allowed: at least one address, or remove upstream.fallback"),
            (
                "{servers: ['a:1'], percent: 0}",
                "upstream.fallback.percent: \"0\" was given; allowed: a number from 1 to 100",
            ),
        ] {
            assert_eq!(parse(fallback).unwrap_err(), problem);
        }
    }

    #[tokio::test]
    async fn its_authorities_are_added_to_those_of_the_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.crt");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&file, made.cert.pem()).unwrap();
        let mut fallback = FallbackConfig { ca: Some(file.into()), ..FallbackConfig::default() };
        let access = |roots: Option<Vec<Vec<u8>>>| {
            let mut access = kube_client::Config::new("https://localhost".parse().unwrap());
            access.root_cert = roots;
            access
        };
        let roots = fallback.trusted(access(Some(vec![vec![1]]))).await.unwrap().root_cert.unwrap();
        assert_eq!(roots, [vec![1], made.cert.der().to_vec()]);
        let error = fallback.trusted(access(None)).await.unwrap_err().to_string();
        assert!(error.contains("names no authority"), "{error}");
        fallback.ca = Some(folder.path().join("missing").into());
        let error = fallback.trusted(access(Some(Vec::new()))).await.unwrap_err().to_string();
        assert!(error.starts_with("upstream.fallback.caFile: ") && error.contains("missing"), "{error}");
        fallback.ca = None;
        assert_eq!(fallback.trusted(access(None)).await.unwrap().root_cert, None);
    }
}
