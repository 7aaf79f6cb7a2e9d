//! Encrypted connections, with libpq's certificate checks for each `sslmode`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use semel_core::{Decision, Store};
use semel_stores::PostgresStore;
use semel_stores::postgres::{DatabaseAddress, PostgresOpenError};
use semel_testkit::postgres::{Cluster, Database};
use semel_testkit::sample;
use tempfile::TempDir;

/// An authority that signs.
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

    /// Returns a certificate for this name, and its key.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=server";
        self.openssl(&format!("{new} -keyout server.key -out server.csr"));
        fs::write(self.path("names"), format!("subjectAltName={name}\n")).expect("there is room");
        self.openssl("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt");
        (self.path("server.crt"), self.path("server.key"))
    }

    /// Returns a self-signed certificate, made as in PostgreSQL's manual, and its key.
    fn self_signed(&self) -> (PathBuf, PathBuf) {
        let new =
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost";
        self.openssl(&format!("{new} -addext subjectAltName=IP:127.0.0.1 -keyout self.key -out self.crt"));
        (self.path("self.crt"), self.path("self.key"))
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

/// Makes the server use this certificate from now on.
fn install(cluster: &Cluster, (certificate, key): (PathBuf, PathBuf)) {
    cluster.use_certificate(&certificate, &key).expect("the server starts again");
}

async fn works(url: &str) {
    let address: DatabaseAddress = url.parse().expect("it is an address");
    let store = PostgresStore::open(&address).await.expect("the database can be used");
    let answer = store.claim(&sample::claim("k")).await.expect("it is decided");
    assert!(matches!(answer.decision, Decision::Execute | Decision::Wait));
}

async fn refused(url: &str, why: &str) {
    let address: DatabaseAddress = url.parse().expect("it is an address");
    let error = PostgresStore::open(&address).await.err().expect("it is refused");
    assert!(
        matches!(error, PostgresOpenError::Unreachable { .. } | PostgresOpenError::Tls { .. }),
        "{error}"
    );
    assert!(error.to_string().contains(why), "{error}");
}

/// Checks the error of a connection that TLS refuses: it names the parameters that would change it, and no
/// others.
async fn refused_by_tls(url: &str, words: &[&str]) {
    let address: DatabaseAddress = url.parse().expect("it is an address");
    let error = PostgresStore::open(&address).await.err().expect("it is refused");
    assert!(matches!(error, PostgresOpenError::Tls { .. }), "{error}");
    let error = error.to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    assert!(!error.contains("password"), "{error}");
}

/// Returns true if the connections with this name are encrypted.
fn is_encrypted(database: &Database, name: &str) -> bool {
    let all = format!(
        "SELECT count(*) > 0 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE application_name = '{name}'"
    );
    database.sql(&all).expect("it can be read") == "t"
}

async fn open(url: &str) -> PostgresStore {
    let address: DatabaseAddress = url.parse().expect("it is an address");
    let store = PostgresStore::open(&address).await.expect("the database can be used");
    store.now().await.expect("it answers");
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_checked_as_libpq_does() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let url = |parameters: &str| format!("{}?{parameters}", database.url());
    refused_by_tls(&url("sslmode=require"), &["does not support TLS", "`ssl = on`", "sslmode=prefer"]).await;
    works(&url("sslmode=prefer")).await;

    install(&cluster, ours.sign("IP:127.0.0.1"));
    for mode in ["require", "verify-ca", "verify-full"] {
        works(&url(&format!("sslmode={mode}&{}", ours.root()))).await;
    }
    // Without a root certificate, `require` and `prefer` encrypt and check nothing.
    for (mode, name) in [("require", "required"), ("prefer", "preferred")] {
        let store = open(&url(&format!("sslmode={mode}&application_name={name}"))).await;
        assert!(is_encrypted(&database, name), "every connection is encrypted: {mode}");
        drop(store);
    }
    let plain = open(&url("sslmode=disable&application_name=plain")).await;
    assert!(!is_encrypted(&database, "plain"));
    drop(plain);

    for mode in ["require", "verify-ca", "verify-full"] {
        let url = url(&format!("sslmode={mode}&{}", theirs.root()));
        refused_by_tls(&url, &["certificate", "sslrootcert", "sslmode"]).await;
    }
    refused_by_tls(&url("sslmode=verify-full"), &["certificate", "sslrootcert"]).await;
    refused_by_tls(&url("sslmode=verify-ca"), &["certificate", "sslrootcert"]).await;
    refused_by_tls(&url("sslmode=require&sslrootcert=/nowhere/ca.crt"), &["sslrootcert /nowhere/ca.crt"])
        .await;

    install(&cluster, ours.sign("DNS:database.example"));
    for mode in ["require", "verify-ca"] {
        works(&url(&format!("sslmode={mode}&{}", ours.root()))).await;
    }
    refused_by_tls(
        &url(&format!("sslmode=verify-full&{}", ours.root())),
        &["another host", "sslmode=verify-ca"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_self_signed_certificate_is_accepted_where_it_is_named_or_not_checked() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let url = |parameters: &str| format!("{}?{parameters}", database.url());
    install(&cluster, ours.self_signed());
    let root = format!("sslrootcert={}", ours.path("self.crt").display());
    theirs.self_signed();
    let other = format!("sslrootcert={}", theirs.path("self.crt").display());
    let store = open(&url("application_name=default")).await;
    assert!(is_encrypted(&database, "default"), "the default encrypts");
    drop(store);
    works(&url("sslmode=require")).await;
    for mode in ["require", "verify-ca", "verify-full"] {
        works(&url(&format!("sslmode={mode}&{root}"))).await;
        refused_by_tls(&url(&format!("sslmode={mode}&{other}")), &["certificate", "sslrootcert"]).await;
    }
    refused_by_tls(&url("sslmode=verify-full"), &["self-signed", "sslrootcert", "sslmode=require"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_comes_from_the_password_file_if_others_cannot_read_it() {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let folder = TempDir::new().expect("there is room");
    let passwords = folder.path().join("passwords");
    database.sql("CREATE ROLE filed SUPERUSER LOGIN PASSWORD 'of:the\\file'").expect("its owner may");
    let address = cluster.server().address();
    let line = format!("{}:{}:{}:filed:of\\:the\\\\file\n", address.ip(), address.port(), database.name());
    fs::write(&passwords, line).expect("there is room");
    let url = format!("postgres://filed@{address}/{}?passfile={}", database.name(), passwords.display());
    fs::set_permissions(&passwords, fs::Permissions::from_mode(0o644)).expect("it is ours");
    refused(&url, "chmod 600").await;
    fs::set_permissions(&passwords, fs::Permissions::from_mode(0o600)).expect("it is ours");
    works(&url).await;
    fs::write(&passwords, "*:*:*:*:wrong\n").expect("there is room");
    refused(&url, "has this password").await;
    fs::write(&passwords, "*:*:elsewhere:*:wrong\n").expect("there is room");
    refused(&url, "has no line for this database").await;
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
    refused_by_tls(&format!("{url}?sslmode=disable"), &["pg_hba.conf", "sslmode=require"]).await;
    works(&format!("{url}?sslmode=require&{}", ours.root())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_no_encryption_gets_none_where_it_is_only_preferred() {
    let ours = Authority::new();
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let rules = cluster.folder().join("data").join("pg_hba.conf");
    let any = fs::read_to_string(&rules).expect("it is there");
    let plain = any.replace(
        "host    all             all             127.0.0.1/32",
        "hostnossl all           all             127.0.0.1/32",
    );
    assert_ne!(plain, any, "it has a rule for this address");
    fs::write(&rules, plain).expect("it is ours");
    install(&cluster, ours.self_signed());
    works(&database.url()).await;
    refused(&format!("{}?sslmode=require", database.url()), "pg_hba.conf").await;
}
