//! A wallet. A transfer, the record of it, the message about it and its answer are committed together, so a transfer
//! whose answer was lost can simply be sent again.
//!
//! `cargo run -p transact` keeps everything in `transact.db`; with a `DATABASE_URL` it is PostgreSQL instead. Then:
//!
//! ```text
//! alice has 100, and gives bob 30:
//! curl -si 127.0.0.1:3000/transfers -H 'X-User: alice' -H 'Idempotency-Key: alice-to-bob-0001' --json '{"to": "bob", "amount": 30}'    # 201 {"left":70}
//!
//! The answer was lost? The same again moves nothing; look for Idempotency-Replayed:
//! curl -si 127.0.0.1:3000/transfers -H 'X-User: alice' -H 'Idempotency-Key: alice-to-bob-0001' --json '{"to": "bob", "amount": 30}'    # 201 {"left":70} replayed
//!
//! Another transfer under the same key is a mistake:
//! curl -si 127.0.0.1:3000/transfers -H 'X-User: alice' -H 'Idempotency-Key: alice-to-bob-0001' --json '{"to": "bob", "amount": 31}'    # 422
//!
//! More than she has is refused, and so are its retries:
//! curl -si 127.0.0.1:3000/transfers -H 'X-User: alice' -H 'Idempotency-Key: alice-to-bob-0002' --json '{"to": "bob", "amount": 71}'    # 402
//! curl -si 127.0.0.1:3000/transfers -H 'X-User: alice' -H 'Idempotency-Key: alice-to-bob-0002' --json '{"to": "bob", "amount": 71}'    # 402 replayed
//!
//! No account has this name; the amount goes back to alice:
//! curl -si 127.0.0.1:3000/transfers -H 'X-User: alice' -H 'Idempotency-Key: alice-to-eve-0001' --json '{"to": "eve", "amount": 5}'    # 404
//!
//! bob got the 30, once:
//! curl -si 127.0.0.1:3000/transfers -H 'X-User: bob' -H 'Idempotency-Key: bob-to-alice-0001' --json '{"to": "alice", "amount": 30}'    # 201 {"left":0}
//! ```

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::post;
use axum::{Json, Router};
use semel::flow::rusqlite::OptionalExtension;
use semel::flow::{Answered, Failure, Idempotent, PostgresTransactions, Reply, SqliteTransactions, sqlx};
use semel::{Backend, Denied, Operation, Principal, Semel};
use serde::{Deserialize, Serialize};
use serde_json::json;

type Error = Box<dyn std::error::Error>;

const ACCOUNTS: &str = "CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, balance BIGINT NOT NULL);
    INSERT INTO accounts (name, balance) VALUES ('alice', 100), ('bob', 0) ON CONFLICT DO NOTHING";
const TAKE: &str =
    "UPDATE accounts SET balance = balance - $1 WHERE name = $2 AND balance >= $1 RETURNING balance";
const GIVE: &str = "UPDATE accounts SET balance = balance + $1 WHERE name = $2";

#[derive(Deserialize, Serialize)]
struct Transfer {
    to: String,
    amount: u32,
}

/// Database of the accounts, with the records beside them.
#[derive(Clone)]
enum Wallet {
    Sqlite(SqliteTransactions),
    Postgres(PostgresTransactions),
}

/// The place of the accounts.
enum Accounts {
    Sqlite(String),
    Postgres(sqlx::PgPool),
}

async fn transfer(
    State(wallet): State<Wallet>,
    Idempotent(command): Idempotent,
    Json(transfer): Json<Transfer>,
) -> Answered {
    let (from, amount) = (command.scope.principal().caller().to_owned(), i64::from(transfer.amount));
    let no_funds = || Failure::refuse(StatusCode::PAYMENT_REQUIRED, &json!({ "error": "no funds" }));
    let nobody = || Failure::refuse(StatusCode::NOT_FOUND, &json!({ "error": "no such account" }));
    let message = json!({ "from": from, "to": transfer.to, "amount": amount }).to_string();
    match wallet {
        Wallet::Sqlite(semel) => {
            let work = move |tx: &semel::flow::sqlite::SqliteTx<'_>| {
                let left = tx.query_row(TAKE, (amount, &from), |row| row.get::<_, i64>(0)).optional()?;
                let left = left.ok_or_else(no_funds)?;
                if tx.execute(GIVE, (amount, &transfer.to))? == 0 {
                    return Err(nobody());
                }
                tx.push("transfer.made", message.as_bytes())?;
                Reply::json(StatusCode::CREATED, &json!({ "left": left }))
            };
            semel.transact(&command, work).await
        }
        Wallet::Postgres(semel) => {
            let work = move |mut tx: semel::flow::postgres::PgTx| async move {
                let take = sqlx::query_scalar(TAKE).bind(amount).bind(&from);
                let left: i64 = take.fetch_optional(&mut *tx).await?.ok_or_else(no_funds)?;
                let give = sqlx::query(GIVE).bind(amount).bind(&transfer.to);
                if give.execute(&mut *tx).await?.rows_affected() == 0 {
                    return Err(nobody());
                }
                tx.push("transfer.made", message.as_bytes()).await?;
                Reply::json(StatusCode::CREATED, &json!({ "left": left }))
            };
            semel.transact(&command, work).await
        }
    }
}

/// Opens the store, and makes the table of accounts in the same database.
async fn open() -> Result<(Arc<dyn Backend>, Accounts), Error> {
    if let Ok(url) = std::env::var("DATABASE_URL") {
        let store = semel::open(&url).await?;
        // BEGIN detects a dead connection soon enough.
        let pool = sqlx::postgres::PgPoolOptions::new().test_before_acquire(false).connect(&url).await?;
        sqlx::raw_sql(ACCOUNTS).execute(&pool).await?;
        return Ok((store, Accounts::Postgres(pool)));
    }
    let path = std::env::args().nth(1).unwrap_or_else(|| "transact.db".into());
    let store = semel::open(&format!("sqlite:{path}")).await?;
    semel::flow::rusqlite::Connection::open(&path)?.execute_batch(ACCOUNTS)?;
    Ok((store, Accounts::Sqlite(path)))
}

/// Returns the caller. A real service asks its authentication; this one trusts a header.
fn identify(head: &Parts) -> Result<Principal, Denied> {
    let user = head.headers.get("x-user").and_then(|value| value.to_str().ok());
    Ok(Principal::new("bank", user.unwrap_or_default())?)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let (store, accounts) = open().await?;
    let semel = Semel::builder(store)
        .identify(identify)
        .operation(Operation::new("transfers.create", "POST /transfers").local())
        .build()?;
    // Refused if the accounts are in another database than the records.
    let wallet = match accounts {
        Accounts::Sqlite(path) => Wallet::Sqlite(semel.file_transactions(path).await?),
        Accounts::Postgres(pool) => Wallet::Postgres(semel.transactions(pool).await?),
    };
    let app = Router::new().route("/transfers", post(transfer)).with_state(wallet).layer(semel.layer());
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    announce(listener.local_addr()?);
    Ok(semel.serve(listener, app).await?)
}

#[allow(clippy::print_stdout, reason = "whoever runs it wants to know")]
fn announce(address: std::net::SocketAddr) {
    println!("listening on {address}; the lines to try are at the top of examples/transact/src/main.rs");
}
