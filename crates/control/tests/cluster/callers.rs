//! Who gets to ask the extender, and admission where that is told whom to take: over real connections.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpupool_control::{CertificateLifetimes, Serving, TrustedClients};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use crate::sandbox;
use crate::scene::{PATIENCE, Scene, eventually, shared_cluster};

/// A certificate and its key, in PEM.
#[derive(Clone)]
struct Identity(String, String);

/// The data of a Secret.
async fn secret(scene: &Scene<'_>, name: &str) -> Option<[String; 3]> {
    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), "default");
    let data = secrets.get_opt(name).await.unwrap()?.data?;
    Some(["ca.crt", "tls.crt", "tls.key"].map(|key| String::from_utf8(data[key].0.clone()).unwrap()))
}

/// A certificate of an authority, which is made up where none is given.
fn signed(name: &str, usage: ExtendedKeyUsagePurpose, authority: Option<(&str, &str)>) -> (Identity, String) {
    let (authority, authority_key) = authority.map_or_else(
        || {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
        },
        |(authority, key)| (authority.to_owned(), key.to_owned()),
    );
    let mut issuer = CertificateParams::default();
    if authority_key_is_controls(&authority) {
        issuer.distinguished_name.push(rcgen::DnType::CommonName, "gpupool-control authority");
    }
    issuer.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = Issuer::new(issuer, KeyPair::from_pem(&authority_key).unwrap());
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    (Identity(certificate, key.serialize_pem()), authority)
}

fn authority_key_is_controls(authority: &str) -> bool {
    let der = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
    der.windows(9).any(|bytes| bytes == b"authority")
}

/// The status line's code and the body; an error where the connection does not get that far.
fn ask(
    address: SocketAddr,
    authority: &str,
    identity: Option<&Identity>,
    request: &str,
) -> std::io::Result<(u16, String)> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let client = ClientConfig::builder().with_root_certificates(roots);
    let client = match identity {
        Some(Identity(certificate, key)) => client
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
        None => client.with_no_client_auth(),
    };
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    code.map(|code| (code, body.to_owned())).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

fn post(path: &str, body: &serde_json::Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// A question that is answered whoever leads.
fn prioritize() -> String {
    let pod = json!({ "metadata": { "name": "p", "uid": "p" }, "spec": { "containers": [] } });
    post("/extender/prioritize", &json!({ "Pod": pod, "NodeNames": ["n"] }))
}

fn bind() -> String {
    post("/extender/bind", &json!({ "PodName": "p", "PodNamespace": "default", "PodUID": "p", "Node": "n" }))
}

const ANYWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

#[tokio::test(flavor = "multi_thread")]
async fn the_extender_is_the_schedulers_alone_by_the_certificate_that_is_made_for_it() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let mut serving = Serving::open(ANYWHERE.into(), "gpupool-control", "default", &[]).unwrap();
    serving.open_extender(ANYWHERE.into(), None).unwrap();
    let admission = serving.listener.local_addr().unwrap();
    let extender = serving.extender.as_ref().unwrap().listener.local_addr().unwrap();
    let controller = scene.serving("one", sandbox(), serving).await;
    let mut made = None;
    eventually("no certificate is made for the scheduler", async || {
        made = secret(&scene, "gpupool-control-scheduler").await;
        made.is_some()
    })
    .await;
    let [authority, certificate, key] = made.unwrap();
    let scheduler = Identity(certificate, key);
    let asks = async |address: SocketAddr, identity: Option<&Identity>, request: String| {
        let (authority, identity) = (authority.clone(), identity.cloned());
        tokio::task::spawn_blocking(move || ask(address, &authority, identity.as_ref(), &request))
            .await
            .unwrap()
    };
    eventually("the scheduler is not answered", async || {
        asks(extender, Some(&scheduler), prioritize()).await.is_ok_and(|(code, _)| code == 200)
    })
    .await;
    let (code, said) = asks(extender, Some(&scheduler), bind()).await.unwrap();
    assert!(code == 200 && said.contains("was not offered"), "{code} {said}");

    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), "default");
    let own = secrets.get("gpupool-control-certificate").await.unwrap().data.unwrap();
    let own = |key: &str| String::from_utf8(own[key].0.clone()).unwrap();
    let own_key = own("ca.key");
    let by_control = Some((&*authority, &*own_key));
    let client = ExtendedKeyUsagePurpose::ClientAuth;
    let strangers = [
        ("nobody's", None),
        ("of another authority", Some(signed("gpupool-scheduler", client.clone(), None).0)),
        ("for another name", Some(signed("somebody", client.clone(), by_control).0)),
        (
            "for a server",
            Some(signed("gpupool-scheduler", ExtendedKeyUsagePurpose::ServerAuth, by_control).0),
        ),
        ("the server's own", Some(Identity(own("tls.crt"), own("tls.key")))),
    ];
    for (what, identity) in &strangers {
        for request in [bind(), prioritize()] {
            let answer = asks(extender, identity.as_ref(), request).await;
            assert!(answer.is_err(), "{what}: {answer:?}");
        }
    }
    // What is refused above is not so for want of skill: the same hand makes one that is taken.
    let (same, _) = signed("gpupool-scheduler", client, by_control);
    assert_eq!(asks(extender, Some(&same), prioritize()).await.unwrap().0, 200);

    // Nor is there a way to it past that port, while admission answers whoever asks.
    assert_eq!(asks(admission, None, bind()).await.unwrap().0, 404);
    assert_eq!(asks(admission, None, post("/validate/pods", &json!({}))).await.unwrap().0, 400);
    controller.end().await;
    remove_secrets(&scene);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schedulers_certificate_is_renewed_while_it_is_used() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let mut serving = Serving::open(ANYWHERE.into(), "gpupool-control", "default", &[]).unwrap();
    serving.open_extender(ANYWHERE.into(), None).unwrap();
    serving.settings.lifetimes = CertificateLifetimes {
        authority: Duration::from_secs(36),
        client: Duration::from_secs(12),
        certificate: Duration::from_secs(18),
    };
    let extender = serving.extender.as_ref().unwrap().listener.local_addr().unwrap();
    let controller = scene.serving("one", sandbox(), serving).await;
    let (mut certificates, mut authorities): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    eventually("nothing is renewed", async || {
        let Some([authority, certificate, key]) = secret(&scene, "gpupool-control-scheduler").await else {
            return false;
        };
        let identity = Identity(certificate.clone(), key);
        let (trusted, question) = (authority.clone(), prioritize());
        let answer = tokio::task::spawn_blocking(move || ask(extender, &trusted, Some(&identity), &question))
            .await
            .unwrap();
        // Whoever reads the Secret anew is answered; what was read a moment ago may have just run out.
        if answer.is_ok_and(|(code, _)| code == 200) {
            for (seen, now) in [(&mut certificates, certificate), (&mut authorities, authority)] {
                if seen.last() != Some(&now) {
                    seen.push(now);
                }
            }
        }
        certificates.len() > 3 && authorities.len() > 1
    })
    .await;
    controller.end().await;
    remove_secrets(&scene);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn authorities_of_ones_own_are_taken_instead_for_the_name_and_a_new_file_holds_without_a_restart() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let client = || ExtendedKeyUsagePurpose::ClientAuth;
    let (scheduler, authority) = signed("my-scheduler", client(), None);
    std::fs::write(&file, &authority).unwrap();
    let trusted =
        |name: Option<&str>| TrustedClients { authorities: file.clone(), name: name.map(str::to_owned) };
    let mut serving = Serving::open(ANYWHERE.into(), "gpupool-control", "default", &[]).unwrap();
    serving.open_extender(ANYWHERE.into(), Some(trusted(Some("my-scheduler")))).unwrap();
    serving.admission_clients = Some(trusted(None));
    let admission = serving.listener.local_addr().unwrap();
    let extender = serving.extender.as_ref().unwrap().listener.local_addr().unwrap();
    let controller = scene.serving("one", sandbox(), serving).await;
    let mut own = None;
    eventually("no certificate is made", async || {
        own = secret(&scene, "gpupool-control-certificate").await;
        own.is_some()
    })
    .await;
    let [server, ..] = own.unwrap();
    let asks = async |address: SocketAddr, identity: Option<&Identity>, request: String| {
        let (server, identity) = (server.clone(), identity.cloned());
        tokio::task::spawn_blocking(move || ask(address, &server, identity.as_ref(), &request)).await.unwrap()
    };
    eventually("the scheduler is not answered", async || {
        asks(extender, Some(&scheduler), prioritize()).await.is_ok_and(|(code, _)| code == 200)
    })
    .await;
    let review = || post("/validate/pods", &json!({}));
    assert_eq!(asks(admission, Some(&scheduler), review()).await.unwrap().0, 400);
    assert!(asks(admission, None, review()).await.is_err());
    assert!(asks(extender, None, prioritize()).await.is_err());
    assert!(secret(&scene, "gpupool-control-scheduler").await.is_none(), "nothing is made that nobody needs");

    let (successor, authority) = signed("my-scheduler", client(), None);
    assert!(asks(extender, Some(&successor), prioritize()).await.is_err());
    write_at_once(&file, &authority);
    eventually("the new authority is not taken", async || {
        asks(extender, Some(&successor), prioritize()).await.is_ok_and(|(code, _)| code == 200)
    })
    .await;
    assert!(asks(extender, Some(&scheduler), prioritize()).await.is_err());
    controller.end().await;
    remove_secrets(&scene);
    scene.end().await;
}

fn write_at_once(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

fn remove_secrets(scene: &Scene<'_>) {
    for name in ["gpupool-control-certificate", "gpupool-control-scheduler"] {
        let words = ["delete", "secret", name, "--ignore-not-found"];
        tokio::task::block_in_place(|| scene.cluster.kubectl(words)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_secret_is_made_again_of_what_is_served_with_and_a_lost_authority_is_told() {
    let cluster = shared_cluster();
    let scene = Scene::on(&cluster).await;
    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), "default");
    let control = async |identity: &str| {
        let mut serving = Serving::open(ANYWHERE.into(), "gpupool-control", "default", &[]).unwrap();
        serving.open_extender(ANYWHERE.into(), None).unwrap();
        scene.serving(identity, sandbox(), serving).await
    };
    let authority = async |name: &str| secret(&scene, name).await.map(|[authority, ..]| authority);
    let lose =
        async || secrets.delete("gpupool-control-certificate", &kube::api::DeleteParams::default()).await;
    let controller = control("one").await;
    eventually("no certificate for the scheduler", async || {
        authority("gpupool-control-scheduler").await.is_some()
    })
    .await;
    let first = authority("gpupool-control-certificate").await;
    lose().await.unwrap();
    eventually("the Secret is not made again", async || {
        authority("gpupool-control-certificate").await.is_some()
    })
    .await;
    assert_eq!(authority("gpupool-control-certificate").await, first);
    assert_eq!(authority("gpupool-control-scheduler").await, first);
    controller.end().await;
    // Without anybody who knows the authority it cannot be had back.
    lose().await.unwrap();
    let controller = control("two").await;
    eventually("no other authority", async || {
        let scheduler = authority("gpupool-control-scheduler").await;
        scheduler != first
            && scheduler.is_some()
            && scheduler == authority("gpupool-control-certificate").await
    })
    .await;
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(scene.client.clone(), "default");
    eventually("nobody is told", async || {
        let listed = events.list(&kube::api::ListParams::default()).await.unwrap();
        listed.items.iter().any(|event| {
            let note = event.note.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some("SchedulerCopyUseless")
                && note.contains("are copied from it again")
                && event.regarding.as_ref().and_then(|object| object.name.as_deref())
                    == Some("gpupool-control-scheduler")
        })
    })
    .await;
    controller.end().await;
    remove_secrets(&scene);
    scene.end().await;
}
