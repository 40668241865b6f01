//! Users in client certificates (read-path 8.1).

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;

use base::{
    apimachinery::UserInfo,
    certificate::{Certificate, Unreadable},
};

/// The extra key, since Kubernetes 1.32, under which a certificate user's certificate is identified.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The parts of a certificate that identify its user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subject {
    /// The last one if there are several; empty if there is none.
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    /// End of the validity period, in seconds since 1970, included.
    pub(super) not_after: i64,
}

impl Subject {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, Unreadable> {
        let Certificate { mut common_names, organizations, valid, .. } = Certificate::parse(certificate)?;
        Ok(Self { common_name: common_names.pop().unwrap_or_default(), organizations, not_after: *valid.end() })
    }

    /// The user, with no group added. `None` without a common name.
    pub(super) fn user(self, certificate: &CertificateDer<'_>) -> Option<UserInfo> {
        if self.common_name.is_empty() {
            return None;
        }
        let mut credential = String::from("X509SHA256=");
        for byte in digest(&SHA256, certificate).as_ref() {
            write!(credential, "{byte:02x}").expect("a String takes what is written to it");
        }
        Some(UserInfo {
            name: self.common_name,
            uid: String::new(),
            groups: self.organizations,
            extra: [(CREDENTIAL_ID.to_owned(), vec![credential])].into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{DnType, DnValue};

    use base::test_certificates::{authority, client, leaf};

    #[test]
    fn a_user_is_the_subject_of_a_certificate() {
        let der = client(&authority("ca"), "jane", "devs").der();
        let user = Subject::of(&der).unwrap().user(&der).unwrap();
        assert_eq!(
            (user.name.as_str(), user.uid.as_str(), user.groups.as_slice()),
            ("jane", "", &["devs".to_owned()][..])
        );
        let id = &user.extra[CREDENTIAL_ID][0];
        let digits = id.strip_prefix("X509SHA256=").unwrap();
        assert!(digits.len() == 64 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')), "{id}");
    }

    #[test]
    fn without_a_common_name_there_is_no_user() {
        let der = leaf(&authority("ca"), |params| params.distinguished_name.push(DnType::OrganizationName, "o")).der();
        let subject = Subject::of(&der).unwrap();
        assert_eq!(subject.organizations, ["o"]);
        assert_eq!(subject.user(&der), None);
    }

    #[test]
    fn subjects_in_unsupported_encodings_are_rejected() {
        let der = leaf(&authority("ca"), |params| {
            let value = DnValue::BmpString(rcgen::string::BmpString::try_from("jane").unwrap());
            params.distinguished_name.push(DnType::CommonName, value);
        })
        .der();
        assert_eq!(Subject::of(&der), Err(Unreadable));
        assert_eq!(Subject::of(&CertificateDer::from_slice(b"x")), Err(Unreadable));
    }
}
