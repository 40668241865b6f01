//! Verifies client certificates, and caches the result for the next requests of a connection.
//!
//! Invariant: a cached result is not used after the authorities have changed, nor after the certificate has expired.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustls::pki_types::UnixTime;
use tokio::time::Instant;

use crate::{
    authn::{
        authorities::{Authorities, AuthoritiesError},
        groups::add_authenticated,
        x509::Subject,
    },
    listener::ClientCertificate,
};
use base::{
    apimachinery::UserInfo,
    config::{PemFile, ProxyHeaders},
    memo::{Bound, TtlCache},
};

/// How front proxies are recognised, and which headers they use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Authorities that sign the front proxies' client certificates.
    pub ca: PemFile,
    /// Common names that a front proxy's certificate may have; empty for any.
    pub allowed_names: Vec<String>,
    /// The headers in which a front proxy names the user.
    pub headers: ProxyHeaders,
}

/// The result of one authentication method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding<T> {
    Proven(T),
    /// The request has no credential of this kind.
    Nothing,
    /// The credential is invalid. Unless another method proves a user, the request is refused rather than treated as
    /// anonymous.
    Wrong,
}

impl<T> Finding<T> {
    /// Combines the results of two methods; the first takes precedence.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Proven(proven), _) | (_, Self::Proven(proven)) => Self::Proven(proven),
            (Self::Wrong, _) | (_, Self::Wrong) => Self::Wrong,
            (Self::Nothing, Self::Nothing) => Self::Nothing,
        }
    }
}

/// What a certificate proves.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    /// Whether it belongs to a front proxy.
    pub(super) front_proxy: Finding<()>,
    /// The user named by the certificate.
    pub(super) user: Finding<Arc<UserInfo>>,
}

/// The certificate authorities, and a cache of verified certificates.
#[derive(Debug)]
pub(super) struct Certificates {
    clients: Option<Authorities>,
    front_proxies: Option<(Authorities, Vec<String>)>,
    /// Incremented when authorities change.
    generation: AtomicU64,
    found: TtlCache<[u8; 32], Found>,
}

#[derive(Clone, Debug)]
struct Found {
    proof: Proof,
    generation: u64,
    not_after: i64,
}

/// How long a result is reused: intermediates may expire in the meantime.
const BELIEVED_FOR: Duration = Duration::from_secs(60);
/// The default limit on connections. A certificate that is not in the cache is verified for each request.
const FOUND: Bound = Bound { most: 10_000, limit: "verified_certificates" };
/// How often the files are read: much more often than authorities are replaced.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

impl Certificates {
    pub(super) async fn load(
        clients: Option<PemFile>,
        front_proxies: Option<RequestHeader>,
    ) -> Result<Self, AuthoritiesError> {
        let clients = match clients {
            Some(file) => Some(Authorities::load(file).await?),
            None => None,
        };
        let front_proxies = match front_proxies {
            Some(RequestHeader { ca, allowed_names, headers: _ }) => {
                Some((Authorities::load(ca).await?, allowed_names))
            }
            None => None,
        };
        Ok(Self { clients, front_proxies, generation: AtomicU64::new(0), found: TtlCache::new(FOUND) })
    }

    /// What a certificate proves now, from the cache if possible.
    pub(super) fn proof(&self, shown: &ClientCertificate) -> Proof {
        let generation = self.generation.load(Ordering::Acquire);
        let now = UnixTime::now();
        if let Some(found) = self.found.get(&shown.fingerprint, Instant::now())
            && found.generation == generation
            && seconds(now) <= found.not_after
        {
            return found.proof;
        }
        let (proof, not_after) = self.find(shown, now);
        self.found.insert(shown.fingerprint, Found { proof: proof.clone(), generation, not_after }, BELIEVED_FOR);
        proof
    }

    fn find(&self, shown: &ClientCertificate, now: UnixTime) -> (Proof, i64) {
        let subject = shown.chain.first().map(|leaf| (leaf, Subject::of(leaf)));
        let Some((leaf, Ok(subject))) = subject else {
            return (Proof { front_proxy: Finding::Wrong, user: Finding::Wrong }, i64::MAX);
        };
        let front_proxy = match &self.front_proxies {
            None => Finding::Nothing,
            Some((authorities, names)) => match authorities.verify(&shown.chain, now) {
                Ok(()) if names.is_empty() || names.contains(&subject.common_name) => Finding::Proven(()),
                _ => Finding::Wrong,
            },
        };
        let not_after = subject.not_after;
        let user = match self.clients.as_ref().map(|authorities| authorities.verify(&shown.chain, now)) {
            None => Finding::Nothing,
            Some(Ok(())) => {
                subject.user(leaf).map_or(Finding::Nothing, |user| Finding::Proven(Arc::new(add_authenticated(user))))
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "client certificate not trusted");
                Finding::Wrong
            }
        };
        (Proof { front_proxy, user }, not_after)
    }

    /// Reloads the files when they change. Never returns; runs until the future is dropped.
    pub(super) async fn follow(&self) {
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            self.reload().await;
        }
    }

    async fn reload(&self) {
        for authorities in self.clients.iter().chain(self.front_proxies.iter().map(|(authorities, _)| authorities)) {
            if authorities.reload().await {
                self.generation.fetch_add(1, Ordering::Release);
                self.found.clear();
            }
        }
    }
}

fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use base::test_certificates::{authority, client};

    #[tokio::test(start_paused = true)]
    async fn replacing_an_authority_invalidates_cached_proofs() {
        let folder = tempfile::tempdir().unwrap();
        let file = PemFile(folder.path().join("ca.crt"));
        let (first, second) = (authority("first"), authority("second"));
        fs::write(&file.0, first.pem()).unwrap();
        let certificates = Certificates::load(Some(file.clone()), None).await.unwrap();
        let [of_first, of_second] = [client(&first, "jane", "devs"), client(&second, "joe", "ops")]
            .map(|issued| ClientCertificate::of(&issued));
        let is_proven = |shown: &_| matches!(certificates.proof(shown).user, Finding::Proven(_));
        assert!(is_proven(&of_first) && !is_proven(&of_second));
        fs::write(&file.0, second.pem()).unwrap();
        assert!(is_proven(&of_first) && !is_proven(&of_second));
        certificates.reload().await;
        assert!(!is_proven(&of_first) && is_proven(&of_second));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cached_proof_is_verified_again_after_its_ttl() {
        let folder = tempfile::tempdir().unwrap();
        let file = PemFile(folder.path().join("ca.crt"));
        let ca = authority("ca");
        fs::write(&file.0, ca.pem()).unwrap();
        let certificates = Certificates::load(Some(file), None).await.unwrap();
        let shown = ClientCertificate::of(&client(&ca, "jane", "devs"));
        let user = |certificates: &Certificates| match certificates.proof(&shown).user {
            Finding::Proven(user) => user,
            Finding::Nothing | Finding::Wrong => panic!("{shown:?}"),
        };
        let first = user(&certificates);
        assert!(Arc::ptr_eq(&first, &user(&certificates)));
        tokio::time::advance(BELIEVED_FOR).await;
        assert!(!Arc::ptr_eq(&first, &user(&certificates)));
    }

    #[test]
    fn a_proven_finding_outranks_a_wrong_one_and_wrong_outranks_none() {
        use Finding::{Nothing, Proven, Wrong};
        for (first, second, expected) in [
            (Proven(1), Proven(2), Proven(1)),
            (Wrong, Proven(2), Proven(2)),
            (Nothing, Proven(2), Proven(2)),
            (Wrong, Nothing, Wrong),
            (Nothing, Wrong, Wrong),
            (Nothing, Nothing, Nothing),
        ] {
            assert_eq!(first.or(second), expected);
        }
    }
}
