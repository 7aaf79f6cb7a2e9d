//! Connections that are encrypted, and refused where the certificate is not the one that was asked for.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use semel_core::{Decision, Store};
use semel_stores::PostgresStore;
use semel_stores::postgres::{Address, OpenError};
use semel_testkit::postgres::Cluster;
use semel_testkit::sample;
use tempfile::TempDir;

/// One authority, which signs.
struct Authority {
    folder: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let authority = Authority { folder: TempDir::new().expect("there is room for a test") };
        let new =
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=authority";
        authority.openssl(&format!("{new} -keyout ca.key -out ca.crt"));
        authority
    }

    /// A certificate for this name, and its key.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=server";
        self.openssl(&format!("{new} -keyout server.key -out server.csr"));
        fs::write(self.path("names"), format!("subjectAltName={name}\n")).expect("there is room");
        self.openssl("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt");
        (self.path("server.crt"), self.path("server.key"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn root(&self) -> String {
        format!("sslrootcert={}", self.path("ca.crt").display())
    }

    fn openssl(&self, words: &str) {
        let output = Command::new("openssl").args(words.split(' ')).current_dir(self.folder.path()).output();
        let output = output.expect("openssl is needed to make certificates: install it");
        assert!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Has the server use this certificate from now on.
fn install(cluster: &Cluster, (certificate, key): (PathBuf, PathBuf)) {
    let data = cluster.folder().join("data");
    let owner = fs::metadata(&data).expect("it is there");
    let put = |from: &Path, name: &str| {
        let to = data.join(name);
        fs::copy(from, &to).expect("there is room");
        fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("it is ours");
        chown(&to, Some(owner.uid()), Some(owner.gid())).expect("it is ours to give");
    };
    put(&certificate, "server.crt");
    put(&key, "server.key");
    cluster.server().sql("postgres", "ALTER SYSTEM SET ssl = on").expect("its owner may");
    cluster.restart().expect("the server starts again");
}

async fn works(url: &str) {
    let address: Address = url.parse().expect("it is an address");
    let store = PostgresStore::open(&address).await.expect("the database can be used");
    let answer = store.claim(&sample::claim("k")).await.expect("it is decided");
    assert!(matches!(answer.decision, Decision::Execute | Decision::Wait));
}

async fn refused(url: &str, why: &str) {
    let address: Address = url.parse().expect("it is an address");
    let error = PostgresStore::open(&address).await.err().expect("it is refused");
    assert!(matches!(error, OpenError::Unreachable { .. } | OpenError::Tls(_)), "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_checked_with_its_name() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let url = |parameters: &str| format!("{}?{parameters}", database.url());
    refused(&url("sslmode=require"), "TLS").await;
    works(&url("sslmode=prefer")).await;

    install(&cluster, ours.sign("IP:127.0.0.1"));
    for mode in ["require", "verify-ca", "verify-full", "prefer"] {
        works(&url(&format!("sslmode={mode}&{}", ours.root()))).await;
    }
    let encrypted = url(&format!("sslmode=require&{}&application_name=encrypted", ours.root()));
    let address: Address = encrypted.parse().expect("it is an address");
    let store = PostgresStore::open(&address).await.expect("the database can be used");
    store.now().await.expect("it answers");
    let count = "SELECT count(*) > 1 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'encrypted'";
    assert_eq!(database.sql(count).expect("it can be read"), "t", "every connection is encrypted");

    refused(&url(&format!("sslmode=require&{}", theirs.root())), "certificate").await;
    refused(&url("sslmode=require"), "certificate").await;
    refused(&url("sslmode=require&sslrootcert=/nowhere/ca.crt"), "/nowhere/ca.crt").await;
    works(&url("sslmode=disable")).await;

    install(&cluster, ours.sign("DNS:database.example"));
    refused(&url(&format!("sslmode=require&{}", ours.root())), "certificate").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_encryption_gets_it() {
    let ours = Authority::new();
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let rules = cluster.folder().join("data").join("pg_hba.conf");
    let plain = fs::read_to_string(&rules).expect("it is there");
    // Our own statements go without, as the server's owner.
    let strict = plain.replace(
        "host    all             all             127.0.0.1/32",
        "hostssl all guest 127.0.0.1/32 scram-sha-256\nhost all semel 127.0.0.1/32",
    );
    assert_ne!(strict, plain, "it has a rule for this address");
    fs::write(&rules, strict).expect("it is ours");
    install(&cluster, ours.sign("IP:127.0.0.1"));
    database.sql("CREATE ROLE guest SUPERUSER LOGIN PASSWORD 'weak'").expect("its owner may");
    let url = format!("postgres://guest:weak@{}/{}", cluster.server().address(), database.name());
    refused(&format!("{url}?sslmode=disable"), "pg_hba.conf").await;
    works(&format!("{url}?sslmode=require&{}", ours.root())).await;
}
