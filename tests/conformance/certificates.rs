//! Certificates and keys of the servers and their clients, generated for each run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// The token of a user in `system:masters`.
pub(crate) const ADMIN_TOKEN: &str = "conformance-admin";

/// The static tokens: token, user name, groups.
pub(crate) const TOKENS: [(&str, &str, &str); 8] = [
    (ADMIN_TOKEN, "admin", "system:masters"),
    ("conformance-reader", "reader", "readers"),
    ("conformance-named", "named", ""),
    ("conformance-wide", "wide", ""),
    ("conformance-keeper", "keeper", "keepers"),
    ("conformance-outsider", "outsider", ""),
    ("conformance-impersonator", "impersonator", ""),
    ("conformance-gateway", "gateway", ""),
];

/// A client's certificate: file, authority, common name, organizations.
struct Client(&'static str, &'static str, &'static str, &'static [&'static str]);

const CLIENTS: [Client; 9] = [
    Client("cert", "ca", "cert", &["readers", "staff"]),
    Client("cert-outsider", "ca", "j\u{fc}rgen <b>", &[]),
    Client("cert-impersonator", "ca", "cert-impersonator", &[]),
    Client("cert-expired", "ca", "cert", &["readers"]),
    Client("cert-wrong", "wrong-ca", "cert", &["readers"]),
    Client("front-proxy", "front-ca", "front-proxy", &[]),
    Client("other-proxy", "front-ca", "other-proxy", &["readers"]),
    Client("ca-proxy", "ca", "front-proxy", &[]),
    Client("masters-proxy", "ca", "front-proxy-client", &["system:masters"]),
];

/// The files for the servers' flags.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    pub(crate) folder: PathBuf,
}

impl Certificates {
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        let mut authorities = Vec::new();
        for name in ["ca", "front-ca", "wrong-ca"] {
            authorities.push((name, authority(folder, name)?));
        }
        let issuer = |name: &str| {
            authorities.iter().find(|(authority, _)| *authority == name).map(|(_, issuer)| issuer).context("authority")
        };

        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        server.distinguished_name.push(DnType::CommonName, "server");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        issue(folder, "server", &server, issuer("ca")?)?;
        for Client(file, authority, name, organizations) in &CLIENTS {
            issue(folder, file, &client(file, name, organizations)?, issuer(authority)?)?;
        }

        let accounts = KeyPair::generate()?;
        fs::write(folder.join("sa.key"), accounts.serialize_pem())?;
        fs::write(folder.join("sa.pub"), accounts.public_key_pem())?;
        // An empty fourth column would be a group without a name.
        let tokens = TOKENS.map(|(token, name, groups)| {
            let groups = if groups.is_empty() { String::new() } else { format!(",\"{groups}\"") };
            format!("{token},{name},uid-{name}{groups}\n")
        });
        fs::write(folder.join("tokens.csv"), tokens.concat())?;
        Ok(Self { folder: folder.to_owned() })
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Writes a kubeconfig of the admin for a server with these certificates (or without TLS).
    pub(crate) fn kubeconfig(&self, name: &str, url: &str) -> Result<PathBuf> {
        self.kubeconfig_of(name, url, ADMIN_TOKEN)
    }

    /// Like [`Self::kubeconfig`], for the user of this token.
    pub(crate) fn kubeconfig_of(&self, name: &str, url: &str, token: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{name}.kubeconfig"));
        let authority = if url.starts_with("https") {
            format!(", certificate-authority: {}", self.file("ca.crt"))
        } else {
            String::new()
        };
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"{url}\"{authority}}}}}]\n\
             users: [{{name: u, user: {{token: {token}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        fs::write(&path, text)?;
        Ok(path)
    }
}

fn authority(folder: &Path, name: &str) -> Result<Issuer<'static, KeyPair>> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(DnType::CommonName, format!("conformance {name}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    fs::write(folder.join(format!("{name}.crt")), authority.self_signed(&key)?.pem())?;
    Ok(Issuer::new(authority, key))
}

fn client(file: &str, name: &str, organizations: &[&str]) -> Result<CertificateParams> {
    let mut client = CertificateParams::new(Vec::new())?;
    client.distinguished_name.push(DnType::CommonName, name);
    // A name can have one entry per type; this is the same type given by its number.
    let types = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    for (kind, organization) in types.into_iter().zip(organizations) {
        client.distinguished_name.push(kind, *organization);
    }
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if file.ends_with("expired") {
        client.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    Ok(client)
}

fn issue(folder: &Path, file: &str, params: &CertificateParams, issuer: &Issuer<'static, KeyPair>) -> Result<()> {
    let key = KeyPair::generate()?;
    fs::write(folder.join(format!("{file}.crt")), params.signed_by(&key, issuer)?.pem())?;
    fs::write(folder.join(format!("{file}.key")), key.serialize_pem())?;
    Ok(())
}
