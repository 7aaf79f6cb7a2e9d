//! A running server, which makes databases from templates and removes them.

use std::net::SocketAddr;
use std::process::Command;

use super::{Binaries, Error, unguessable};

/// Timeout of our own connections, in seconds.
const CONNECT_TIMEOUT: &str = "10";
/// Longest version of a template: names of databases have at most 63 bytes.
const LONGEST_VERSION: usize = 40;

/// Address and login of a server. Clones mean the same server.
#[derive(Clone, Debug)]
pub struct Server {
    pub(super) binaries: Binaries,
    pub(super) address: SocketAddr,
    pub(super) user: String,
    pub(super) password: String,
}

impl Server {
    /// Returns the server at `postgres://user:password@address:port/`, with the programs of this machine.
    pub fn at(url: &str) -> Result<Server, Error> {
        let parts = || {
            let (login, place) = url.strip_prefix("postgres://")?.split_once('@')?;
            let (user, password) = login.split_once(':')?;
            let address = place.split(['/', '?']).next()?.parse().ok()?;
            Some((user.to_owned(), password.to_owned(), address))
        };
        let (user, password, address) = parts().ok_or_else(|| {
            Error::new(format!("`{url}` is not like postgres://user:password@127.0.0.1:5432/"))
        })?;
        Ok(Server { binaries: Binaries::find()?, address, user, password })
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of one of its databases. Its user is a superuser.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{}:{}@{}/{database}", self.user, self.password, self.address)
    }

    /// Returns a new empty database.
    pub fn create_database(&self) -> Result<Database, Error> {
        let database = Database { server: self.clone(), name: format!("test_{}", unguessable()) };
        self.sql("postgres", &format!("CREATE DATABASE {}", database.name))?;
        Ok(database)
    }

    /// Returns a new database with everything that `migrate` makes.
    ///
    /// The result is kept as a template under the version, and copied from then on: every process that asks
    /// for the same version gets the same. So the version must change with `migrate`, which gets the URL of
    /// an empty database; its connections to it are closed when it returns.
    pub async fn database_from<F, T, E>(&self, version: &str, migrate: F) -> Result<Database, Error>
    where
        F: FnOnce(String) -> T,
        T: Future<Output = Result<(), E>>,
        E: std::fmt::Display,
    {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.');
        if version.is_empty() || version.len() > LONGEST_VERSION || !version.chars().all(fits) {
            return Err(Error::new(format!(
                "`{version}` cannot be the version of a template: it needs 1 to {LONGEST_VERSION} characters of \
                 a-z, 0-9, `_`, `-`, `.`"
            )));
        }
        let template = format!("template_{version}");
        match self
            .off_thread({
                let template = template.clone();
                move |server| server.copy_of(&template)
            })
            .await
        {
            Err(error) if error.0.contains(NO_SUCH_DATABASE) => {}
            made => return made,
        }
        let draft = self.off_thread(|server| server.create_database()).await?;
        migrate(draft.url())
            .await
            .map_err(|error| Error::new(format!("the template {version} could not be migrated: {error}")))?;
        self.off_thread(move |server| {
            server.publish(&draft, &template)?;
            server.copy_of(&template)
        })
        .await
    }

    fn copy_of(&self, template: &str) -> Result<Database, Error> {
        let database = Database { server: self.clone(), name: format!("test_{}", unguessable()) };
        self.sql("postgres", &format!("CREATE DATABASE {} TEMPLATE \"{template}\"", database.name))?;
        Ok(database)
    }

    /// Publishes a template under its name, complete or not at all. Of several concurrent makers, the first
    /// to finish gives it the name.
    fn publish(&self, draft: &Database, template: &str) -> Result<(), Error> {
        let name = &draft.name;
        self.sql("postgres", &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"))?;
        draft.terminate_backends()?;
        match self.sql("postgres", &format!("ALTER DATABASE {name} RENAME TO \"{template}\"")) {
            Err(error) if !NAME_TAKEN.iter().any(|code| error.0.contains(code)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs one statement as the server's owner, and returns its rows, columns separated by `|`.
    pub fn sql(&self, database: &str, statement: &str) -> Result<String, Error> {
        let mut command = Command::new(self.binaries.program("psql"));
        for (name, _) in std::env::vars_os() {
            // Removes a developer's own settings for other servers.
            if name.to_str().is_some_and(|name| name.starts_with("PG")) {
                command.env_remove(name);
            }
        }
        command
            .env("PGPASSWORD", &self.password)
            .env("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT)
            .env("LC_ALL", "C");
        command.args(["-h", &self.address.ip().to_string(), "-p", &self.address.port().to_string()]);
        command.args(["-U", &self.user, "-d", database, "-v", "VERBOSITY=verbose"]);
        command.args([
            "--no-psqlrc",
            "--no-password",
            "--quiet",
            "--no-align",
            "--tuples-only",
            "-c",
            statement,
        ]);
        let output = command.output().map_err(|error| {
            Error::new(format!("{} cannot be run: {error}", self.binaries.program("psql").display()))
        })?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(Error::new(format!("`{statement}` on {}: {}", self.address, why.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Runs work that waits for `psql`, without blocking the tasks of the caller's thread.
    async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Server) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let server = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&server)).await;
        done.unwrap_or_else(|error| Err(Error::new(format!("the work on a database broke off: {error}"))))
    }
}

/// SQLSTATE of a missing database. `psql` shows the codes of errors before their texts.
const NO_SUCH_DATABASE: &str = " 3D000: ";
/// SQLSTATEs of a name that is taken, or was taken at the same moment.
const NAME_TAKEN: [&str; 2] = [" 42P04: ", " 23505: "];

/// A database of one test. Dropping it removes it, and ends all connections to it.
#[derive(Debug)]
pub struct Database {
    server: Server,
    name: String,
}

impl Database {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Returns its server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Runs one statement in it, by [`Server::sql`].
    pub fn sql(&self, statement: &str) -> Result<String, Error> {
        self.server.sql(&self.name, statement)
    }

    /// Ends every connection to it from the server's side. Returns their number.
    pub fn terminate_backends(&self) -> Result<usize, Error> {
        let statement = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}'",
            self.name
        );
        count(&self.server.sql("postgres", &statement)?)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Best effort: it is also removed with its server.
        let _ = self.server.sql("postgres", &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// Returns a number that a statement answered with.
pub(super) fn count(rows: &str) -> Result<usize, Error> {
    rows.parse().map_err(|_| Error::new(format!("a count was expected, not `{rows}`")))
}
