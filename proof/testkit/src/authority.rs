//! An authority that signs certificates, the certificates of clients and servers, and TLS between the two.
//! The command `openssl` makes the certificates, and is itself not tested.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::client::{Reply, Send};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, ServerConfig, SupportedProtocolVersion};
use semel_core::Timestamp;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// An authority, and its files: `ca.crt`, and a `.crt` and a `.key` for every certificate that it issued.
pub struct Authority {
    folder: TempDir,
}

/// Purpose and validity of a certificate.
pub struct Shown {
    usage: &'static str,
    names: String,
    /// First and last moment, as `openssl ca` writes them.
    dates: Option<[String; 2]>,
}

impl Shown {
    /// Returns a certificate of servers for these names, such as `DNS:localhost`.
    pub fn server(names: &str) -> Shown {
        Shown { usage: "serverAuth", names: names.to_owned(), dates: None }
    }

    /// Returns a certificate of clients.
    pub fn client() -> Shown {
        Shown { usage: "clientAuth", names: String::new(), dates: None }
    }

    /// Sets alternative names.
    pub fn named(self, names: &str) -> Shown {
        Shown { names: names.to_owned(), ..self }
    }

    /// Sets dates that ended years ago.
    pub fn ended(self) -> Shown {
        Shown { dates: Some(["20200101000000Z", "20210101000000Z"].map(str::to_owned)), ..self }
    }

    /// Sets dates from years ago until `end`.
    pub fn until(self, end: Timestamp) -> Shown {
        let end: String =
            end.to_rfc3339().chars().take_while(|c| *c != '.').filter(char::is_ascii_digit).collect();
        Shown { dates: Some(["20200101000000Z".to_owned(), format!("{end}Z")]), ..self }
    }
}

const CONFIGURATION: &str = "\
[ca]
default_ca = own
[own]
database = index.txt
new_certs_dir = .
serial = serial
crlnumber = crlnumber
certificate = ca.crt
private_key = ca.key
default_md = sha256
default_days = 2
default_crl_days = 2
unique_subject = no
policy = any
[any]
organizationName = optional
commonName = optional
";

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Authority {
    /// Creates an authority, in a folder of its own.
    pub fn new() -> Authority {
        let authority = Authority { folder: TempDir::new().expect("there is room for a test") };
        for (file, text) in
            [("ca.cnf", CONFIGURATION), ("index.txt", ""), ("serial", "1000\n"), ("crlnumber", "01\n")]
        {
            std::fs::write(authority.path(file), text).expect("there is room");
        }
        authority
            .openssl(&format!("req -x509 {NEW_KEY} -days 2 -subj /CN=authority -keyout ca.key -out ca.crt"));
        authority
    }

    /// Returns the path of one of its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of the authority's own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.path("ca.crt")
    }

    /// Issues a certificate for a new key, to `FILE.crt` and `FILE.key`.
    pub fn issue(&self, file: &str, subject: &str, shown: &Shown) {
        let Shown { usage, names, dates } = shown;
        let names = if names.is_empty() { String::new() } else { format!("subjectAltName={names}\n") };
        let extensions = format!("extendedKeyUsage={usage}\n{names}");
        std::fs::write(self.path("extensions"), extensions).expect("there is room");
        self.openssl(&format!("req {NEW_KEY} -subj {subject} -keyout {file}.key -out {file}.csr"));
        let signed = format!("-in {file}.csr -extfile extensions -out {file}.crt");
        match dates {
            None => self.openssl(&format!(
                "x509 -req {signed} -days 2 -CA ca.crt -CAkey ca.key -CAserial serial -CAcreateserial"
            )),
            Some([first, last]) => self.openssl(&format!(
                "ca -config ca.cnf -batch -notext {signed} -startdate {first} -enddate {last}"
            )),
        }
    }

    /// Revokes a certificate: the next list contains it.
    pub fn revoke(&self, file: &str) {
        self.openssl(&format!("ca -config ca.cnf -revoke {file}.crt"));
    }

    /// Writes the list of revoked certificates, to `ca.crl`.
    pub fn list(&self) -> PathBuf {
        self.openssl("ca -config ca.cnf -gencrl -out ca.crl");
        self.path("ca.crl")
    }

    fn openssl(&self, words: &str) {
        let output = Command::new("openssl").args(words.split(' ')).current_dir(self.folder.path()).output();
        let output = output.expect("openssl is needed to make certificates: install it");
        assert!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(self.certificate()).expect("it is a certificate");
        roots.add(certificate).expect("it is an authority");
        roots
    }

    fn certified(&self, file: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let certificate = CertificateDer::from_pem_file(self.path(&format!("{file}.crt")));
        let key = PrivateKeyDer::from_pem_file(self.path(&format!("{file}.key")));
        (vec![certificate.expect("it is a certificate")], key.expect("it is a key"))
    }

    /// Returns a client that trusts this authority, and shows no certificate.
    pub fn client(&self) -> Client {
        self.client_of(rustls::ALL_VERSIONS)
    }

    /// Returns a client that trusts this authority and speaks these versions of TLS only.
    pub fn client_of(&self, versions: &[&'static SupportedProtocolVersion]) -> Client {
        Client { config: self.trusting(versions).with_no_client_auth() }
    }

    /// Returns a client that trusts this authority, and shows a certificate of `other`.
    pub fn client_with(&self, other: &Authority, file: &str) -> Client {
        let (certificates, key) = other.certified(file);
        let config = self.trusting(rustls::ALL_VERSIONS).with_client_auth_cert(certificates, key);
        Client { config: config.expect("they go together") }
    }

    fn trusting(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(versions);
        config.expect("they are versions").with_root_certificates(self.roots())
    }

    /// Speaks TLS in front of this address with an issued certificate. Returns the port.
    pub async fn encrypt(&self, file: &str, behind: SocketAddr) -> u16 {
        self.encrypt_for(file, behind, None).await
    }

    /// Speaks TLS in front of this address, only for clients with a certificate of `clients`. Returns the
    /// port.
    pub async fn encrypt_for(&self, file: &str, behind: SocketAddr, clients: Option<&Authority>) -> u16 {
        let (certificates, key) = self.certified(file);
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("it has versions");
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(clients) => {
                let roots = Arc::new(clients.roots());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                config.with_client_cert_verifier(verifier.expect("it has an authority"))
            }
        };
        let mut config = config.with_single_cert(certificates, key).expect("they go together");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    match acceptor.accept(stream).into_fallible().await {
                        Ok(mut stream) => {
                            let mut behind = TcpStream::connect(behind).await.expect("it listens");
                            let _ = tokio::io::copy_bidirectional(&mut stream, &mut behind).await;
                        }
                        // A reset would overtake the alert with the reason.
                        Err((_, mut stream)) => {
                            let _ = stream.read_to_end(&mut Vec::new()).await;
                        }
                    }
                });
            }
        });
        port
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A client that speaks TLS.
#[derive(Clone)]
pub struct Client {
    config: ClientConfig,
}

impl Client {
    /// Offers these protocols.
    pub fn offering(mut self, protocols: &[&[u8]]) -> Client {
        self.config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        self
    }

    /// Connects to `localhost`, which is at this address.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").expect("it is a name");
        TlsConnector::from(Arc::new(self.config.clone())).connect(name, stream).await
    }

    /// Sends one request on a connection of its own.
    ///
    /// # Errors
    /// If there is no answer: a server may refuse a client after the client's part of the handshake.
    pub async fn try_send(&self, address: SocketAddr, request: Send) -> anyhow::Result<Reply> {
        Connection::over_http1(self.connect(address).await?).await?.try_send(request).await
    }

    /// Sends one request on a connection of its own, and expects an answer.
    pub async fn send(&self, address: SocketAddr, request: Send) -> Reply {
        self.try_send(address, request).await.expect("there is an answer")
    }
}

/// A connection over which requests are sent one after the other.
pub enum Connection {
    /// HTTP/1.1.
    Http1(http1::SendRequest<http_body_util::Full<bytes::Bytes>>),
    /// HTTP/2.
    Http2(http2::SendRequest<http_body_util::Full<bytes::Bytes>>),
}

impl Connection {
    /// Begins to speak HTTP/1.1.
    ///
    /// # Errors
    /// If the other side does not.
    pub async fn over_http1(stream: TlsStream<TcpStream>) -> anyhow::Result<Connection> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection::Http1(sender))
    }

    /// Begins to speak HTTP/2.
    ///
    /// # Errors
    /// If the other side does not.
    pub async fn over_http2(stream: TlsStream<TcpStream>) -> anyhow::Result<Connection> {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection::Http2(sender))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn try_send(&mut self, request: Send) -> anyhow::Result<Reply> {
        let mut request = request.into_request();
        let response = match self {
            Connection::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Connection::Http2(sender) => {
                *request.uri_mut() = format!("https://lab{}", request.uri()).parse()?;
                request.headers_mut().remove("host");
                sender.send_request(request).await?
            }
        };
        Ok(Reply::read(response).await)
    }

    /// Sends a request that must have an answer.
    pub async fn send(&mut self, request: Send) -> Reply {
        self.try_send(request).await.expect("there is an answer")
    }
}

/// Returns the settings of a listener with a certificate of this authority.
pub fn listener(table: &str, authority: &Authority, file: &str) -> String {
    let path = |name: String| shown(&authority.path(&name));
    format!(
        "[{table}]\ncertificate = {}\nkey = {}\n",
        path(format!("{file}.crt")),
        path(format!("{file}.key"))
    )
}

/// Returns a path as TOML.
pub fn shown(path: &Path) -> String {
    format!("\"{}\"", path.display())
}
