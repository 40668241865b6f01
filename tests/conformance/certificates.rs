//! Certificates and keys of the servers, made at run time.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// What a client has to send to be in `system:masters`.
pub(crate) const ADMIN_TOKEN: &str = "conformance-admin";

/// The files that the servers' flags name.
#[derive(Clone, Debug)]
pub(crate) struct Certificates {
    pub(crate) folder: PathBuf,
}

impl Certificates {
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.distinguished_name.push(DnType::CommonName, "conformance");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority_key = KeyPair::generate()?;
        fs::write(folder.join("ca.crt"), authority.self_signed(&authority_key)?.pem())?;
        let issuer = Issuer::new(authority, authority_key);

        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        server.distinguished_name.push(DnType::CommonName, "server");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;
        fs::write(folder.join("server.crt"), server.signed_by(&server_key, &issuer)?.pem())?;
        fs::write(folder.join("server.key"), server_key.serialize_pem())?;

        let accounts = KeyPair::generate()?;
        fs::write(folder.join("sa.key"), accounts.serialize_pem())?;
        fs::write(folder.join("sa.pub"), accounts.public_key_pem())?;
        fs::write(folder.join("tokens.csv"), format!("{ADMIN_TOKEN},admin,admin,system:masters\n"))?;
        Ok(Self { folder: folder.to_owned() })
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Writes a kubeconfig for a server with these certificates (or a plain one), for the admin.
    pub(crate) fn kubeconfig(&self, name: &str, url: &str) -> Result<PathBuf> {
        let path = self.folder.join(format!("{name}.kubeconfig"));
        let authority = if url.starts_with("https") {
            format!(", certificate-authority: {}", self.file("ca.crt"))
        } else {
            String::new()
        };
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"{url}\"{authority}}}}}]\n\
             users: [{{name: u, user: {{token: {ADMIN_TOKEN}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        fs::write(&path, text)?;
        Ok(path)
    }
}
