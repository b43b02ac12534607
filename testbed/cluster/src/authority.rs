//! Certificates and keys of one cluster: an authority of its own, from which nothing else is ever signed.

use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};

use crate::{Error, home};

/// The names by which components and pods reach the API server.
const SERVER_NAMES: &[&str] = &[
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// A certificate and its key, in PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Signs the certificates of one cluster.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a new authority.
    pub(crate) fn new() -> Result<Self, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "gpupool testbed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// The authority's certificate, in PEM.
    pub(crate) fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// An identity for a server under these names and addresses.
    pub(crate) fn server(&self, names: &[String]) -> Result<Identity, Error> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "testbed");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// An identity for a client: Kubernetes reads the user from the common name, the group from the organization.
    pub(crate) fn client(&self, user: &str, group: Option<&str>) -> Result<Identity, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity, Error> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

/// Files of the credentials that the components are started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// The authority's certificate.
    pub(crate) authority: PathBuf,
    /// Certificate of the authority of proxies in front of the API server, of which there are none.
    pub(crate) front_proxy: PathBuf,
    /// Certificate that the components' servers show, and its key.
    pub(crate) server: (PathBuf, PathBuf),
    /// The administrator's certificate and key.
    pub(crate) admin: (PathBuf, PathBuf),
    /// Public and private key of service-account tokens.
    pub(crate) service_accounts: (PathBuf, PathBuf),
    /// The administrator's kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// Kubeconfigs of scheduler, controller-manager, kube-proxy and kwok.
    pub(crate) scheduler: PathBuf,
    pub(crate) proxy: PathBuf,
    pub(crate) controller_manager: PathBuf,
    pub(crate) kwok: PathBuf,
}

impl Credentials {
    /// Makes all credentials of a cluster whose API server is at `server`, as files below `folder`; `names` are the
    /// server's, beside the usual ones.
    pub(crate) fn make(
        folder: &Path,
        authority: &Authority,
        server: &str,
        names: &[String],
    ) -> Result<Self, Error> {
        let usual = SERVER_NAMES.iter().map(|&name| name.to_owned());
        let names: Vec<String> = usual.chain(names.iter().cloned()).collect();
        let certificate = authority.certificate();
        let write_pair = |name: &str, pair: &Identity| -> Result<(PathBuf, PathBuf), Error> {
            let (public, private) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
            home::write_private(&public, &pair.certificate)?;
            home::write_private(&private, &pair.key)?;
            Ok((public, private))
        };
        let write_kubeconfig = |name: &str, identity: &Identity| -> Result<PathBuf, Error> {
            let path = folder.join(name);
            home::write_private(&path, &kubeconfig(server, &certificate, identity))?;
            Ok(path)
        };
        let (ca, front_proxy) = (folder.join("ca.crt"), folder.join("front-proxy-ca.crt"));
        home::write_private(&ca, &certificate)?;
        home::write_private(&front_proxy, &Authority::new()?.certificate())?;
        let admin = authority.client("testbed-admin", Some("system:masters"))?;
        let key = KeyPair::generate()?;
        let tokens = Identity { certificate: key.public_key_pem(), key: key.serialize_pem() };
        Ok(Self {
            server: write_pair("server", &authority.server(&names)?)?,
            admin: write_pair("admin", &admin)?,
            service_accounts: write_pair("service-accounts", &tokens)?,
            kubeconfig: write_kubeconfig("kubeconfig", &admin)?,
            scheduler: write_kubeconfig(
                "scheduler.kubeconfig",
                &authority.client("system:kube-scheduler", None)?,
            )?,
            controller_manager: write_kubeconfig(
                "controller-manager.kubeconfig",
                &authority.client("system:kube-controller-manager", None)?,
            )?,
            proxy: write_kubeconfig("kube-proxy.kubeconfig", &authority.client("system:kube-proxy", None)?)?,
            // kwok plays every part of a node and writes nodes, pods and leases of all: it is given all rights.
            kwok: write_kubeconfig("kwok.kubeconfig", &authority.client("kwok", Some("system:masters"))?)?,
            authority: ca,
            front_proxy,
        })
    }
}

/// A kubeconfig in JSON, which is YAML too, with everything inside: it can be copied anywhere.
pub(crate) fn kubeconfig(server: &str, authority: &str, identity: &Identity) -> String {
    let data = |pem: &str| BASE64_STANDARD.encode(pem);
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": {
            "server": server,
            "certificate-authority-data": data(authority),
        }}],
        "users": [{"name": "testbed", "user": {
            "client-certificate-data": data(&identity.certificate),
            "client-key-data": data(&identity.key),
        }}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
        "current-context": "testbed",
    })
    .to_string()
}
